//! The flags of the text: each is known, and each line is there if its flags hold.

use decoder::{Decoder, Documents, HUGGING_FACE, Options};
use tensor::Tensor;

use super::super::lists::lists;
use super::super::tests::fixtures::tensors;
use super::*;

/// The record of a LLaMA with two layers, with some of its text replaced.
fn decoder(changes: &[(&str, &str)]) -> (Decoder, Vec<(String, Tensor)>) {
    let all = tensors(&HUGGING_FACE, 1);
    let config = r#"{"model_type": "llama", "num_attention_heads": 4}"#.to_owned();
    let documents = Documents { config: Some(config), ..Documents::default() };
    let plain = decoder::named("llama", &all, &Options { documents, ..Options::default() });
    let mut record = plain.expect("config and shapes agree").record();
    for (from, to) in changes {
        assert!(record.contains(from), "{from}: {record}");
        record = record.replace(from, to);
    }
    (Decoder::from_record(&record, &all).expect("flags of some model"), all)
}

/// The text of the decoder, with the lists of all its weights.
fn text(changes: &[(&str, &str)]) -> String {
    let (decoder, _) = decoder(changes);
    let all = decoder.weights().map(|weight| decoder::Assigned { weight, index: 0, view: None });
    let (positions, lists) = (Positions::new(&decoder), lists(&all.collect::<Vec<_>>()));
    let text = Text { decoder: &decoder, positions: &positions, lists: &lists, has_half: false };
    text.methods(Signature::Dict(Errors::Return)) + &text.functions()
}

const EXPERTS: &str = r#""experts":{"count":4,"per_token":2,"hidden":8,"softmax":"AfterChoice","renormalised":false,"biases":false,"interleaved":false,"shared":null,"layers":[true,true]}"#;
const NO_EXPERTS: &str = r#""experts":null"#;

#[test]
fn a_llama_has_only_what_it_needs() {
    let text = text(&[]);
    for rest in ["[", "{linear", "{norm", "{head", "{split", "{dim", "{bad"] {
        let at_start = |line: &str| line.trim_start().starts_with(rest);
        let found = if rest == "[" { text.lines().any(at_start) } else { text.contains(rest) };
        assert!(!found, "{rest}: {text}");
    }
    for other in ["experts", "gelu", "layer_norm", "tanh", "frequencies", "rope_high", "window{_}", "copy_"] {
        assert!(!text.contains(other), "{other}: {text}");
    }
    assert!(text.lines().count() < 250, "{}", text.lines().count());
}

#[test]
fn every_flag_is_known() {
    let (decoder, _) = decoder(&[]);
    let positions = Positions::new(&decoder);
    let text = Text { decoder: &decoder, positions: &positions, lists: &Vec::new(), has_half: false };
    let mut known = 0;
    for part in [
        forward::INFER,
        forward::FREQUENCIES,
        forward::ATTENTION,
        forward::FEED_FORWARD,
        forward::GATED,
        forward::EXPERTS,
        functions::FUNCTIONS,
    ] {
        let flagged = part.lines().filter_map(|line| line.trim_start().strip_prefix('['));
        for flag in
            flagged.filter_map(|line| Some(line.split_once("] ")?.0)).flat_map(|flags| flags.split(", "))
        {
            // Panics if it is not.
            text.holds(flag.strip_prefix("not ").unwrap_or(flag));
            known += 1;
        }
    }
    assert!(known > 80, "{known}");
}

#[test]
fn each_flag_adds_its_lines() {
    let yarn = r#"{"theta":10000.0,"scaling":{"Yarn":{"factor":4.0,"fast":32.0,"slow":1.0,"old":64.0,"magnitude":1.1,"truncate":true}}}"#;
    let dynamic = r#"{"theta":10000.0,"scaling":{"Dynamic":{"factor":4.0,"old":64.0}}}"#;
    let plain = r#"{"theta":10000.0,"scaling":null}"#;
    let experts = |from: &str, to: &str| EXPERTS.replace(from, to);
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[("\"Rms\"", "\"RmsPlusOne\"")], "torch.add_(torch.to(weight, d, False, True), 1)"),
        (&[("\"Rms\"", "\"Layer\"")], "(weights[\"norm_bias\"])[0], self.norm_eps{_})"),
        (&[("\"Rms\"", "\"Layer\"")], "(weights[\"attention_norm_bias\"])[i], self.norm_eps{_})"),
        (&[("\"Before\"", "\"Both\"")], "{ns}.norm(torch.to(f, wide), (weights[\"ffn_post_norm\"])[i]"),
        (&[("\"Before\"", "\"After\"")], "x = torch.to(h, narrow)"),
        (&[("\"head_norm\":null", "\"head_norm\":\"Head\"")], "q = {ns}.norm(q, (weights[\"q_norm\"])[i]"),
        (
            &[("\"head_norm\":null", "\"head_norm\":\"EachHead\"")],
            "torch.stack(torch.slice(weights[\"k_norm\"]",
        ),
        (&[("\"rotated\":4", "\"rotated\":2")], "torch.copy_(torch.slice(out, 3, 0"),
        (&[(plain, yarn)], "cos = torch.mul_(cos, size)"),
        (&[(plain, yarn)], "f = {ns}.numbers(self.frequencies{_}"),
        (&[(plain, dynamic)], "pos = torch.to(torch.arange(0, "),
        (&[("\"rope_of_layer\":null", "\"rope_of_layer\":[0,null]")], "cos = torch.select(cosines, 2, r)"),
        (&[("\"soft_cap\":null,\"sinks\"", "\"soft_cap\":5.0,\"sinks\"")], "self.score_cap{_}"),
        (&[("\"sinks\":false", "\"sinks\":true")], "weights"),
        (&[("\"residual\":1.0", "\"residual\":0.5")], "h = torch.add_(h, f, alpha=self.residual_scale{_})"),
        (&[("\"parallel\":false", "\"parallel\":true")], "y = x"),
        (&[("\"Silu\"", "\"GeluTanh\"")], "torch.gelu(gate, approximate=\"tanh\")"),
        (&[("\"Silu\"", "{\"ClampedSwiglu\":{\"alpha\":1.7,\"limit\":7.0}}")], "torch.sigmoid_("),
        (&[(NO_EXPERTS, EXPERTS)], "f = (self).experts(i, z, y, )"),
        (
            &[(NO_EXPERTS, &experts("[true,true]", "[false,true]"))],
            "f = (self).experts((self.place{_})[i], z, y, )",
        ),
        (
            &[(NO_EXPERTS, &experts("\"biases\":false", "\"biases\":true"))],
            "{ns}.weight(weights[\"expert_w2_bias\"], e, g)",
        ),
        (
            &[(NO_EXPERTS, &experts("\"interleaved\":false", "\"interleaved\":true"))],
            "torch.slice(both, 1, 1, None, 2)",
        ),
        (
            &[(NO_EXPERTS, &experts("\"shared\":null", "\"shared\":{\"hidden\":8,\"gated\":true}"))],
            "torch.sigmoid_(torch.to(",
        ),
    ];
    for (changes, line) in cases {
        let text = text(changes);
        assert!(text.contains(line), "{changes:?}: {line}: {text}");
    }
}
