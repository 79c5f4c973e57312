//! Tests of the text: each template line is in the text if its flags hold, and a change of the text does not go unnoticed.

use byte_source::{Blob, OwnedBlob, Sha256, hex};
use decoder::{AssignedWeight, Assignment, Decoder, LayoutOwner};
use tensor::{Dtype, Storage, Tensor};

use super::super::calling_convention::CallingConvention;
use super::super::lists::group_weights;
use super::super::module::decoder_archive;
use super::super::positions::RotaryPositions;
use super::super::tests::fixtures::tensors;
use super::template::TemplateLine;
use super::*;
use crate::OnInvalidInput;

/// Test decoder, by the differences of its record from that of a plain LLaMA.
struct Case {
    name: &'static str,
    changes: &'static [(&'static str, &'static str)],
    layout: LayoutOwner,
    dtype: Dtype,
    /// Part of the decoder's text that a plain LLaMA does not have.
    line: &'static str,
}

/// Record of a LLaMA with two layers.
const RECORD: &str = r#"{"code_version":5,"architecture":"llama","dim":16,"n_layers":2,"n_heads":4,"n_kv_heads":2,"head_dim":4,"rotated":4,"hidden":48,"vocab":32,"norm_eps":1e-6,"ropes":[{"theta":10000.0,"scaling":null}],"rope_of_layer":null,"windows":{"size":null,"layers":"All"},"biases":{"qkv":false,"output":false,"feed_forward":false},"block":{"norm":"Rms","norms":"Before","head_norm":null,"scores":{"scale":null,"soft_cap":null,"sinks":false},"activation":"Silu","parallel":false,"scales":{"embedding":1.0,"residual":1.0,"logits":1.0,"logits_soft_cap":null},"experts":null}}"#;

const PLAIN: Case =
    Case { name: "plain", changes: &[], layout: LayoutOwner::HuggingFace, dtype: Dtype::BFloat16, line: "" };

const fn case(
    name: &'static str,
    changes: &'static [(&'static str, &'static str)],
    line: &'static str,
) -> Case {
    Case { name, changes, line, ..PLAIN }
}

/// Change that adds a member to the block.
macro_rules! with_block {
    ($member:literal) => {
        ("\"parallel\":", concat!($member, ",\"parallel\":"))
    };
}

const NO_EXPERTS: &str = r#""experts":null"#;
const EXPERTS: &str = r#""experts":{"count":4,"per_token":2,"hidden":8,"softmax":"AfterChoice","renormalised":false,"biases":false,"interleaved":false,"shared":null,"layers":[true,true]}"#;
const NO_ROPES: (&str, &str) = ("\"rope_of_layer\":null", "\"rope_of_layer\":[null,null]");
const EACH_HEAD: (&str, &str) = ("\"head_norm\":null", "\"head_norm\":\"Head\"");
const DELTA_NET: (&str, &str) = with_block!(
    "\"gated_attention\":true,\"delta_net\":{\"key_heads\":1,\"value_heads\":2,\"key_dim\":3,\"value_dim\":4,\"kernel\":2,\"fused\":false,\"layers\":[true,false]}"
);
const MIXED: (&str, &str) = with_block!(
    "\"mixed_heads\":{\"head_dim\":6,\"kv_heads\":1,\"keys_are_values\":true,\"first_shared\":2,\"doubles_hidden\":false}"
);
const BOTH: (&str, &str) = ("\"Before\"", "\"Both\"");
const TWO_ROPES: (&str, &str) = (
    ROPE,
    r#"{"theta":10000.0,"scaling":{"Proportional":{"part":0.5,"factor":1.0}}},{"theta":10000.0,"scaling":null}"#,
);
const ONE_WINDOW: (&str, &str) = (NO_WINDOW, r#"{"size":7,"layers":{"Listed":[true,false]}}"#);
const ROPES_OF_BOTH: (&str, &str) = ("\"rope_of_layer\":null", "\"rope_of_layer\":[1,0]");
const ROPES_OF_ONE: (&str, &str) = ("\"rope_of_layer\":null", "\"rope_of_layer\":[0,0]");
const LAYER_INPUTS: (&str, &str) =
    with_block!("\"layer_scalars\":true,\"layer_inputs\":{\"width\":4,\"vocab\":32}");
const BESIDE: (&str, &str) =
    ("\"biases\":false,\"interleaved\"", "\"beside_dense\":true,\"biases\":false,\"interleaved\"");
const HEADS: (&str, &str) = ("\"head_norm\":null", "\"head_norm\":\"Heads\"");
const LOGITS: (&str, &str) = ("\"feed_forward\":false", "\"feed_forward\":false,\"logits\":true");
const UNGATED: (&str, &str) = with_block!("\"feed_forward\":\"Plain\"");
const SIGMOID: &str = r#"{"Sigmoid":{"groups":1,"chosen_groups":1,"factor":2.5}}"#;
const EARLY: (&str, &str) = ("\"AfterChoice\"", "\"BeforeChoice\"");
const RENORMALISED: (&str, &str) = ("\"renormalised\":false", "\"renormalised\":true");
const SHARED: (&str, &str) = ("\"shared\":null", "\"shared\":{\"hidden\":8,\"gated\":true}");
const PARALLEL: (&str, &str) = ("\"parallel\":false", "\"parallel\":true");
const AFTER: (&str, &str) = ("\"Before\"", "\"After\"");
const LAYER: (&str, &str) = ("\"Rms\"", "\"Layer\"");
const SINKS: (&str, &str) = ("\"sinks\":false", "\"sinks\":true");
const ROPE: &str = r#"{"theta":10000.0,"scaling":null}"#;
const LLAMA3: &str =
    r#"{"theta":10000.0,"scaling":{"Llama3":{"factor":8.0,"low":1.0,"high":4.0,"old":64.0}}}"#;
const YARN: &str = r#"{"theta":10000.0,"scaling":{"Yarn":{"factor":4.0,"fast":32.0,"slow":1.0,"old":64.0,"magnitude":1.1,"truncate":true}}}"#;
const DYNAMIC: &str = r#"{"theta":10000.0,"scaling":{"Dynamic":{"factor":4.0,"old":64.0}}}"#;
const LONG: &str = r#"{"theta":10000.0,"scaling":{"LongRope":{"short":[1.0,2.0],"long":[3.0,4.0],"old":32.0,"magnitude":1.5}}}"#;
const NO_WINDOW: &str = r#"{"size":null,"layers":"All"}"#;

/// Test decoders that together use each flag, and each line of the templates, at least once.
const CASES: &[Case] = &[
    PLAIN,
    Case { name: "of Meta", layout: LayoutOwner::Meta, line: "torch.select(y, -1, 0)", ..PLAIN },
    Case { name: "half", dtype: Dtype::Float16, line: "weights = (self.__tensors__{_}).narrow", ..PLAIN },
    Case {
        name: "half with experts and sinks",
        changes: &[(NO_EXPERTS, EXPERTS), SINKS],
        dtype: Dtype::Float16,
        line: "(self.__tensors__{_}).weight(\"expert_w2\", e, g, )",
        ..PLAIN
    },
    Case {
        name: "blocks",
        dtype: Dtype::UInt8,
        line: "h = torch.to({ns}.dequantized(torch.embedding(w, tokens)), wide)",
        ..PLAIN
    },
    case("plus one", &[("\"Rms\"", "\"RmsPlusOne\"")], "torch.add_(torch.to(weight, d, False, True), 1)"),
    case("layer norm", &[LAYER], "(weights[\"attention_norm_bias\"])[i], self.norm_eps{_})"),
    case(
        "layer norm of heads",
        &[LAYER, ("\"head_norm\":null", "\"head_norm\":\"EachHead\"")],
        "def head_norm(x: Tensor,",
    ),
    case(
        "norms before and after",
        &[("\"Before\"", "\"Both\"")],
        "{ns}.norm(torch.to(f, wide), (weights[\"ffn_post_norm\"])[i]",
    ),
    case("norms after", &[AFTER], "x = torch.to(h, narrow)"),
    case(
        "norm of heads",
        &[("\"head_norm\":null", "\"head_norm\":\"Head\"")],
        "q = {ns}.norm(q, (weights[\"q_norm\"])[i]",
    ),
    case(
        "norm of each head",
        &[("\"head_norm\":null", "\"head_norm\":\"EachHead\"")],
        "torch.stack(torch.slice(weights[\"k_norm\"]",
    ),
    case(
        "norm of projections",
        &[("\"head_norm\":null", "\"head_norm\":\"Projection\"")],
        "k = {ns}.norm(k, (weights[\"k_norm\"])[i]",
    ),
    case("part of a head", &[("\"rotated\":4", "\"rotated\":2")], "torch.copy_(torch.slice(out, 3, 0"),
    case("llama3", &[(ROPE, LLAMA3)], "span = torch.sub(self.rope_high{_}, self.rope_low{_})"),
    case("yarn", &[(ROPE, YARN)], "cos = torch.mul_(cos, size)"),
    case("dynamic", &[(ROPE, DYNAMIC)], "pos = torch.to(torch.arange(0, "),
    case("longrope", &[(ROPE, LONG)], "torch.where(is_long, {ns}.numbers(self.long_frequencies{_}"),
    case(
        "a rope of some layers",
        &[("\"rope_of_layer\":null", "\"rope_of_layer\":[0,null]")],
        "cos = torch.select(cosines, 2, r)",
    ),
    case("window", &[(NO_WINDOW, r#"{"size":7,"layers":"All"}"#)], "mask = near"),
    case(
        "window of some layers",
        &[(NO_WINDOW, r#"{"size":7,"layers":{"From":1}}"#)],
        "(self.windowed{_})[i]",
    ),
    case(
        "scale of scores",
        &[("\"scores\":{\"scale\":null", "\"scores\":{\"scale\":0.3")],
        "self.score_scale{_}",
    ),
    case(
        "cap of scores",
        &[("\"soft_cap\":null,\"sinks\"", "\"soft_cap\":5.0,\"sinks\"")],
        "self.score_cap{_}",
    ),
    case("sinks", &[SINKS], "weights[\"sinks\"]"),
    case("scale of embeddings", &[("\"embedding\":1.0", "\"embedding\":4.0")], "self.embedding_scale{_}"),
    case(
        "scale of rows",
        &[("\"residual\":1.0", "\"residual\":0.5")],
        "h = torch.add_(h, f, alpha=self.residual_scale{_})",
    ),
    case("scale of logits", &[("\"logits\":1.0", "\"logits\":0.5")], "self.logits_scale{_}"),
    case("cap of logits", &[("\"logits_soft_cap\":null", "\"logits_soft_cap\":5.0")], "self.logits_cap{_}"),
    case("biases of queries", &[("\"qkv\":false", "\"qkv\":true")], "{ns}.weight(weights[\"bq\"], i, x)"),
    case(
        "bias of attention",
        &[("\"output\":false", "\"output\":true")],
        "{ns}.weight(weights[\"bo\"], i, o)",
    ),
    case(
        "biases of the feed-forward layer",
        &[("\"feed_forward\":false", "\"feed_forward\":true")],
        "{ns}.weight(weights[\"b2\"], i, g)",
    ),
    case("parallel", &[PARALLEL], "y = x"),
    case("parallel with experts", &[PARALLEL, (NO_EXPERTS, EXPERTS)], "z = torch.to(x, wide)"),
    case("gelu", &[("\"Silu\"", "\"Gelu\"")], "torch.gelu(gate)"),
    case("gelu with tanh", &[("\"Silu\"", "\"GeluTanh\"")], "torch.gelu(gate, approximate=\"tanh\")"),
    case(
        "clamped",
        &[("\"Silu\"", "{\"ClampedSwiglu\":{\"alpha\":1.7,\"limit\":7.0}}")],
        "torch.sigmoid_(torch.mul(gate, self.alpha{_}))",
    ),
    case("experts", &[(NO_EXPERTS, EXPERTS)], "f = (self).experts(i, z, y, )"),
    case("experts with norms after", &[AFTER, (NO_EXPERTS, EXPERTS)], "z = h\n"),
    case(
        "experts of some layers",
        &[(NO_EXPERTS, EXPERTS), ("[true,true]", "[false,true]")],
        "f = (self).experts((self.place{_})[i], z, y, )",
    ),
    case(
        "biases of experts",
        &[(NO_EXPERTS, EXPERTS), ("\"biases\":false", "\"biases\":true")],
        "{ns}.weight(weights[\"expert_w2_bias\"], e, g)",
    ),
    case(
        "interleaved experts",
        &[(NO_EXPERTS, EXPERTS), ("\"interleaved\":false", "\"interleaved\":true")],
        "torch.slice(both, 1, 1, None, 2)",
    ),
    case(
        "experts that are renormalised",
        &[(NO_EXPERTS, EXPERTS), EARLY, RENORMALISED],
        "share = torch.div_(share, torch.sum(share, [-1], True))",
    ),
    case("a shared expert", &[(NO_EXPERTS, EXPERTS), SHARED], "torch.sigmoid_(torch.to("),
    case(
        "a shared expert without a gate",
        &[(NO_EXPERTS, EXPERTS), SHARED, ("\"gated\":true", "\"gated\":false")],
        "common = torch.to(torch.linear(g, {ns}.weight(weights[\"shared_w2\"], i, g)), ",
    ),
    case(
        "scale of queries",
        &[with_block!("\"query_scale\":{\"beta\":0.1,\"old\":64.0}")],
        "q = torch.mul_(q, sharpness)",
    ),
    case(
        "norm of heads after the rotation",
        &[HEADS, with_block!("\"head_norm_last\":true")],
        "k = {ns}.rotate(k, cos, sin)\n      q = {ns}.norm(q, (weights[\"q_norm\"])[i]",
    ),
    case(
        "learned positions",
        &[with_block!("\"learned_positions\":{\"count\":8,\"offset\":2}")],
        "torch.embedding((weights[\"positions\"])[0], at)",
    ),
    case(
        "a bias of positions",
        &[NO_ROPES, with_block!("\"alibi\":\"AfterScale\"")],
        "bias = torch.outer(torch.to(slope, 6), torch.to(pos, 6))",
    ),
    case(
        "a bias of positions that is scaled",
        &[NO_ROPES, with_block!("\"alibi\":\"BeforeScale\"")],
        "bias = torch.outer(torch.to(slope, 15), torch.to(pos, 15))",
    ),
    case(
        "fused heads",
        &[with_block!("\"fused_heads\":true")],
        "q = torch.reshape(torch.slice(qkv, 3, 0, -2), [b, s, -1, hd])",
    ),
    case(
        "a norm of embeddings",
        &[LAYER, with_block!("\"embedding_norm\":true")],
        "h = {ns}.norm(h, (weights[\"embedding_norm\"])[0], (weights[\"embedding_norm_bias\"])[0], self.norm_eps{_})",
    ),
    case(
        "rows that are added to norms",
        &[with_block!("\"adds_to_norms\":true")],
        "h = {ns}.norm(h, (weights[\"ffn_norm\"])[i], self.norm_eps{_})",
    ),
    case(
        "parallel with two norms",
        &[PARALLEL, with_block!("\"parallel_norms\":true")],
        "y = torch.to({ns}.norm(h, (weights[\"ffn_norm\"])[i], self.norm_eps{_}), narrow)\n      q = ",
    ),
    case("DeltaNet", &[EACH_HEAD, DELTA_NET], "new = torch.linalg_solve_triangular(own, wanted, "),
    case(
        "fused DeltaNet",
        &[EACH_HEAD, DELTA_NET, ("\"fused\":false", "\"fused\":true")],
        "beta = torch.reshape(torch.slice(parts, 3, 0, group), [b, s, n])",
    ),
    Case {
        name: "DeltaNet in half",
        changes: &[EACH_HEAD, DELTA_NET],
        dtype: Dtype::Float16,
        line: "qkv = torch.to(torch.linear(x, (self.__tensors__{_}).weight(\"delta_qkv\", i, x, )), wide)",
        ..PLAIN
    },
    case(
        "layer norm of heads with biases",
        &[LAYER, EACH_HEAD, ("\"output\":false", "\"output\":false,\"head_norm\":true")],
        "q = {ns}.norm(q, (weights[\"q_norm\"])[i], (weights[\"q_norm_bias\"])[i], self.norm_eps{_})",
    ),
    case(
        "heads of two sizes",
        &[EACH_HEAD, BOTH, TWO_ROPES, ROPES_OF_BOTH, ONE_WINDOW, MIXED],
        "before_k = torch.select(near_k, 0, c)",
    ),
    case(
        "heads of another size in all layers",
        &[
            EACH_HEAD,
            BOTH,
            TWO_ROPES,
            ROPES_OF_ONE,
            MIXED,
            ("\"keys_are_values\":true", "\"keys_are_values\":false"),
        ],
        "before_k = torch.select(pk, 0, c)",
    ),
    case("inputs of layers", &[LAYER_INPUTS], "inner = torch.mul_(torch.add_(inner, own), "),
    Case {
        name: "inputs of layers in blocks",
        changes: &[LAYER_INPUTS],
        dtype: Dtype::UInt8,
        line: "own = torch.to({ns}.dequantized(torch.embedding((weights[\"layer_embedding\"])[0], tokens)), wide)",
        ..PLAIN
    },
    case(
        "experts next to dense layers",
        &[BOTH, (NO_EXPERTS, EXPERTS), BESIDE, RENORMALISED, ("\"AfterChoice\"", "\"Scaled\"")],
        "f = torch.add_(f, {ns}.norm(e, (weights[\"experts_post_norm\"])[i], self.norm_eps{_}))",
    ),
    case("limit of queries", &[with_block!("\"qkv_limit\":8.0")], "v = torch.clamp_(v, "),
    case(
        "layer norm without a bias",
        &[("\"Rms\"", "\"LayerWithoutBias\"")],
        "None, None, eps), torch.to(weight, d))",
    ),
    case("bias of logits", &[LOGITS], "{ns}.weight(weights[\"output_bias\"], 0, z)"),
    Case {
        name: "bias of logits in half",
        changes: &[LOGITS],
        dtype: Dtype::Float16,
        line: "(self.__tensors__{_}).weight(\"output_bias\", 0, z, )",
        ..PLAIN
    },
    case("relu", &[("\"Silu\"", "\"Relu\"")], "g = torch.relu(gate)"),
    case(
        "a layer without a gate",
        &[UNGATED, ("\"Silu\"", "\"ReluSquared\"")],
        "torch.square(torch.relu(gate))",
    ),
    case("xielu", &[UNGATED, ("\"Silu\"", "\"Xielu\"")], "torch.expm1_(torch.minimum(x, eps))"),
    Case {
        name: "xielu in half",
        changes: &[UNGATED, ("\"Silu\"", "\"Xielu\"")],
        dtype: Dtype::Float16,
        line: "g = (self).activated(i, torch.linear(y",
        ..PLAIN
    },
    case(
        "sparsemixer",
        &[(NO_EXPERTS, EXPERTS), ("\"AfterChoice\"", "{\"Sparsemixer\":{\"jitter\":0.01}}")],
        "share = torch.cat([one, other], self.cat_dim{_})",
    ),
    case(
        "sigmoid of scores",
        &[(NO_EXPERTS, EXPERTS), ("\"AfterChoice\"", SIGMOID)],
        "share = torch.gather(scores, -1, ids)",
    ),
    case(
        "sigmoid of scores in groups",
        &[
            (NO_EXPERTS, EXPERTS),
            ("\"AfterChoice\"", SIGMOID),
            ("\"groups\":1", "\"groups\":2"),
            RENORMALISED,
        ],
        "torch.add_(torch.sum(share, [-1], True), 1e-20)",
    ),
];

struct CaseModel {
    decoder: Decoder,
    positions: RotaryPositions,
    assignment: Assignment,
    tensors: Vec<(String, Tensor)>,
}

impl Case {
    fn build_model(&self) -> CaseModel {
        let mut record = RECORD.to_owned();
        for (from, to) in self.changes {
            assert!(record.contains(from), "{from}: {record}");
            record = record.replace(from, to);
        }
        let decoder = Decoder::from_record(&record, &tensors(self.layout, 1).clone().into())
            .expect("flags of some model");
        let (mut weights, mut tensors) = (Vec::new(), Vec::new());
        for (index, weight) in decoder.weights().enumerate() {
            let tensor = Tensor::new(self.dtype, vec![1], vec![1], 0, Storage::owned(vec![0; 2]));
            tensors.push((format!("w{index}"), tensor.expect("one element")));
            weights.push(AssignedWeight { weight, index, view: None });
        }
        let positions = RotaryPositions::new(&decoder);
        CaseModel { decoder, positions, assignment: Assignment { weights, notes: Vec::new() }, tensors }
    }

    fn text(&self) -> String {
        with_variant(&self.build_model(), |variant| methods(variant) + &functions(variant))
    }

    /// Returns the SHA-256 hash of all records of the archives that are made for the case.
    fn sha256(&self) -> String {
        let made = self.build_model();
        let mut all = Vec::new();
        for errors in [OnInvalidInput::Return, OnInvalidInput::Raise] {
            let signature = CallingConvention::Dict(errors);
            let archive =
                decoder_archive(&made.decoder, signature, &made.assignment, &made.tensors.clone().into());
            for (name, bytes) in archive.expect("plain names").0.head_records() {
                all.extend([name.as_bytes(), &(bytes.len() as u64).to_le_bytes(), bytes].concat());
            }
        }
        let mut sink = Sha256::default();
        OwnedBlob(all).write_to(&mut sink).expect("a hash takes it");
        hex(&sink.digest())
    }
}

fn with_variant<T>(made: &CaseModel, use_it: impl FnOnce(TextVariant<'_>) -> T) -> T {
    let has = |dtype| made.tensors.iter().any(|(_, tensor)| tensor.dtype() == dtype);
    let signature = CallingConvention::Dict(OnInvalidInput::Return);
    let (decoder, positions, lists) =
        (&made.decoder, &made.positions, &group_weights(&made.assignment.weights));
    let (has_float16, has_blocks) = (has(Dtype::Float16), has(Dtype::UInt8));
    use_it(TextVariant { decoder, positions, lists, has_float16, has_blocks, signature })
}

/// Checks the archives of each case. A module is recognised only if it is made again byte for byte, so after a change of a
/// template, an attribute or a list of weights, cartons that were written before no longer run: raise `CODE_VERSION`, and
/// replace the hashes.
#[test]
fn the_text_has_the_stored_hashes() {
    let made: Vec<String> = CASES.iter().map(|case| format!("{}  {}", case.sha256(), case.name)).collect();
    let expected = include_str!("../../../../tests/written/decoder.txt");
    assert_eq!(made, expected.lines().collect::<Vec<_>>());
}

#[test]
fn a_llama_has_only_what_it_needs() {
    let text = PLAIN.text();
    for rest in ["[", "{linear", "{norm", "{head", "{split", "{dim", "{bad"] {
        let at_start = |line: &str| line.trim_start().starts_with(rest);
        let found = if rest == "[" { text.lines().any(at_start) } else { text.contains(rest) };
        assert!(!found, "{rest}: {text}");
    }
    for other in ["experts", "gelu", "layer_norm", "tanh", "frequencies", "rope_high", "window{_}", "copy_"] {
        assert!(!text.contains(other), "{other}: {text}");
    }
    assert!(text.lines().count() < 270, "{}", text.lines().count());
}

#[test]
fn flags_of_all_templates_are_known_and_each_line_is_in_some_text() {
    let cases: Vec<CaseModel> = CASES.iter().map(Case::build_model).collect();
    let templates = METHODS.iter().chain(FUNCTIONS).map(|(_, template)| template);
    let lines: Vec<TemplateLine<'_>> =
        templates.flat_map(|template| template.lines()).map(TemplateLine::parse).collect();
    assert!(lines.iter().filter(|line| !line.flags.is_empty()).count() > 80, "{}", lines.len());
    for line in lines {
        assert!(!line.text.starts_with('['), "an unknown flag: {}", line.text);
        let raises = line.flags == [(checks::RAISES, true)];
        let is_used = cases.iter().any(|made| with_variant(made, |variant| line.is_selected(variant)));
        assert!(is_used || raises, "no case has the line {line:?}");
    }
}

#[test]
fn each_flag_adds_its_lines() {
    let plain = PLAIN.text();
    for case in CASES.iter().filter(|case| case.name != PLAIN.name) {
        let (text, Case { name, line, .. }) = (case.text(), case);
        assert!(text.contains(line), "{name}: {line}: {text}");
        assert!(!plain.contains(line), "{name}: {line}");
    }
}
