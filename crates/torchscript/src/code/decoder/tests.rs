//! Decoders of every layout, made and refused; and tensors for the tests of the architectures.

use tensor::Storage;

use crate::{About, Port, auto, model};

use super::*;

const PARAMS: &str =
    r#"{"dim": 16, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "multiple_of": 8, "vocab_size": -1}"#;

pub(in crate::code) fn zeros(name: &str, shape: &[u64]) -> (String, Tensor) {
    let mut stride = vec![1; shape.len()];
    if let [.., columns] = shape {
        stride[..shape.len().saturating_sub(1)].fill(*columns);
    }
    let bytes = vec![0; 2 * 64 * 64];
    let tensor = Tensor::new(Dtype::BFloat16, shape.to_vec(), stride, 0, Storage::owned(bytes));
    (name.to_owned(), tensor.expect("4096 elements are enough"))
}

/// The tensors that [`PARAMS`] describe, of `of` shards one, with the names of `layout`.
pub(in crate::code) fn tensors(layout: &Layout, of: u64) -> Vec<(String, Tensor)> {
    let part = |size: u64| size.checked_div(of).expect("at least one shard");
    let outer = |name: &str, shape: &[u64]| zeros(&format!("{name}.weight"), shape);
    let mut all = vec![
        outer(layout.embedding, &[32, 16]),
        outer(layout.norm, &[16]),
        outer(layout.output, &[part(32), 16]),
    ];
    for layer in 0..2 {
        for (at, shape) in [
            vec![part(16), 16],
            vec![part(8), 16],
            vec![part(8), 16],
            vec![16, part(16)],
            vec![part(48), 16],
            vec![16, part(48)],
            vec![part(48), 16],
            vec![16],
            vec![16],
        ]
        .iter()
        .enumerate()
        {
            all.push(zeros(&layout.part(layer, at), shape));
        }
    }
    all
}

fn metas(of: u64) -> Vec<(String, Tensor)> {
    let mut all = tensors(&META, of);
    all.push(zeros("rope.freqs", &[2]));
    all
}

fn params(text: &str) -> About {
    About { params: Some(text.to_owned()), ..About::default() }
}

pub(in crate::code) fn code(converted: &Converted) -> String {
    String::from_utf8(converted.archive.code().to_vec()).expect("it was text")
}

#[test]
fn metas_layout_becomes_tokens_to_logits() {
    let converted = auto(&metas(1), &params(PARAMS)).expect("params and shapes agree");
    assert_eq!((converted.kind.to_string().as_str(), converted.notes.len()), ("llama", 0));
    let ports = |ports: &[Port]| {
        ports.iter().map(|port| (port.name.clone(), port.shape.len(), port.optional)).collect::<Vec<_>>()
    };
    let port = |name: &str, dims, optional| (name.to_owned(), dims, optional);
    assert_eq!(
        ports(&converted.inputs),
        [
            port("tokens", 2, false),
            port("last_only", 0, true),
            port("use_cache", 0, true),
            port("past_key", 5, true),
            port("past_value", 5, true)
        ]
    );
    assert_eq!(
        ports(&converted.outputs),
        [port("logits", 3, false), port("present_key", 5, true), port("present_value", 5, true)]
    );
    let code = code(&converted);
    // Nothing of the templates is left, and no layer stands in the text.
    for rest in ["Self", "{ns}", "{_}", "{linear", "{split}", "{dim}"] {
        assert!(!code.contains(rest), "{rest}: {code}");
    }
    assert!(!code.contains("_bias") && code.matches("torch.linear(").count() == 8, "{code}");
}

#[test]
fn shards_are_told_by_their_shapes() {
    let of = |tensors: &[_], text: &str| match auto(tensors, &params(text)) {
        Err(Error::Shard { of }) => Some(of),
        _ => None,
    };
    assert_eq!([1, 2, 4].map(|count| of(&metas(count), PARAMS)), [None, Some(2), Some(4)]);
    assert_eq!(of(&metas(1), r#"{"n_heads": 4, "head_dim": 8}"#), Some(2));
    assert_eq!(of(&metas(1), "{}"), None);
}

#[test]
fn disagreements_say_which_and_how() {
    let changed =
        |from: &str, to: &str| auto(&metas(1), &params(&PARAMS.replace(from, to))).expect_err(to).to_string();
    for (from, to, expected) in [
        (
            r#""n_layers": 2"#,
            r#""n_layers": 3"#,
            "params.json: `n_layers` is 3, expected 2, the checkpoint's layers",
        ),
        (r#""n_heads": 4"#, r#""n_heads": 3"#, "params.json: `n_heads` is 3, expected a divisor of dim 16"),
        (
            "-1",
            "31",
            "tensor `tok_embeddings.weight`: shape [32, 16], expected [31, 16] by vocab_size 31 and dim 16",
        ),
        (
            r#""n_kv_heads": 2"#,
            r#""n_kv_heads": 4"#,
            "tensor `layers.0.attention.wk.weight`: shape [8, 16], expected [16, 16] by n_kv_heads 4 (of 4 each) and dim 16",
        ),
        (
            r#""multiple_of": 8"#,
            r#""multiple_of": 64"#,
            "tensor `layers.0.feed_forward.w1.weight`: shape [48, 16], expected [64, 16] by a feed-forward width of 64 and dim 16",
        ),
        (
            r#""n_heads": 4"#,
            r#""n_heads": 8"#,
            "tensor `layers.0.attention.wk.weight`: shape [8, 16], expected [4, 16] by n_kv_heads 2 (of 2 each) and dim 16",
        ),
    ] {
        assert_eq!(changed(from, to), expected);
    }
}

#[test]
fn what_the_shapes_do_not_tell_is_asked_for() {
    let mut plain = metas(1);
    let error =
        |tensors: &[_], about: &About| model("llama", tensors, about).expect_err("untold").to_string();
    let nothing = About::default();
    let untold = "there is no params.json, and the shapes do not tell ";
    assert_eq!(error(&plain, &nothing), format!("{untold}`rope_theta` and `norm_eps`"));
    plain.pop();
    assert_eq!(error(&plain, &nothing), format!("{untold}`n_heads`, `rope_theta` and `norm_eps`"));
    assert_eq!(error(&plain, &params("{}")), "params.json has no `n_heads`, which the shapes do not tell");
    let asked = crate::Asked {
        n_heads: Some(4),
        rope_theta: Some(1e4),
        norm_eps: Some(1e-5),
        ..crate::Asked::default()
    };
    let about = About { asked, ..About::default() };
    assert_eq!(auto(&plain, &about).expect("all is said").kind.to_string(), "llama");
    let asked = crate::Asked { n_heads: Some(4), ..crate::Asked::default() };
    let error = auto(&plain, &About { asked, ..About::default() }).expect_err("untold").to_string();
    assert_eq!(error, format!("{untold}`rope_theta` and `norm_eps`"));
    let error = auto(&[zeros("w", &[1])], &about).expect_err("no model").to_string();
    assert_eq!(error, "this is no model that runs: no known architecture");
}

#[test]
fn a_person_says_only_what_params_json_leaves_open() {
    let whole = r#""dim": 16, "n_kv_heads": 2, "norm_eps": 1e-6, "rope_theta": 5e5"#;
    let heads = |n_heads| Asked { n_heads: Some(n_heads), ..Asked::default() };
    let factor = |factor| Asked { rope_factor: Some(factor), ..Asked::default() };
    let outcome = |more: &str, asked: Asked| {
        let about = About { asked, ..params(&format!("{{{whole}, {more}}}")) };
        auto(&tensors(&META, 1), &about).map(|converted| converted.archive.data_pkl().to_vec())
    };
    let four = r#""n_heads": 4"#;
    let unscaled = r#""n_heads": 4, "use_scaled_rope": false"#;
    let scaled = r#""n_heads": 4, "use_scaled_rope": true, "rope_scaling_factor": 8"#;
    let open = r#""n_heads": 4, "use_scaled_rope": true"#;
    for (more, asked, expected) in [
        (four, heads(2), "--n-heads is 2, but params.json says 4"),
        (
            four,
            Asked { rope_theta: Some(1e4), ..Asked::default() },
            "--rope-theta is 10000, but params.json says 500000",
        ),
        (
            four,
            Asked { norm_eps: Some(1e-5), ..Asked::default() },
            "--norm-eps is 1e-5, but params.json says 1e-6",
        ),
        (unscaled, factor(8.0), "--rope-factor is 8, but params.json says `use_scaled_rope` false"),
        (scaled, factor(32.0), "--rope-factor is 32, but params.json says 8"),
    ] {
        assert_eq!(outcome(more, asked).expect_err("two answers").to_string(), expected);
    }
    let same = outcome(scaled, Asked::default()).expect("right");
    for more in [scaled, open, four] {
        assert_eq!(outcome(more, factor(8.0)).expect("agreed"), same, "{more}");
    }
    let same = outcome(four, Asked::default()).expect("right");
    assert_ne!(same, outcome(scaled, Asked::default()).expect("right"));
    for more in [four, r#""n_heads": null"#] {
        assert_eq!(outcome(more, heads(4)).expect("agreed"), same, "{more}");
    }
}

#[test]
fn heads_that_only_a_person_says_are_blamed_on_no_document() {
    let asked = |n_heads| Asked {
        n_heads: Some(n_heads),
        rope_theta: Some(1e4),
        norm_eps: Some(1e-5),
        ..Asked::default()
    };
    let error = |tensors: &[_], about: About| {
        let error = model("llama", tensors, &about).expect_err("no such heads");
        assert_eq!(error.document(), None, "{error}");
        error.to_string()
    };
    let plain = tensors(&META, 1);
    let of = |n_heads| About { asked: asked(n_heads), ..About::default() };
    assert_eq!(error(&plain, of(5)), "--n-heads is 5, expected a divisor of dim 16");
    assert_eq!(
        error(&plain, of(16)),
        "--n-heads is 16, expected heads of an even size, whose halves are rotated, and not of 1"
    );
    assert_eq!(
        error(&plain, of(1)),
        "--n-heads is 1, expected heads no larger than the first dimension of `layers.0.attention.wk.weight`"
    );
    let open = r#"{"norm_eps": 1e-5, "n_kv_heads": 3}"#;
    assert_eq!(
        error(&plain, About { asked: asked(4), ..params(open) }),
        "--n-heads is 4, expected a multiple of n_kv_heads 3"
    );
    let hf = tensors(&HUGGING_FACE, 1);
    assert_eq!(error(&hf, of(5)), "--n-heads is 5, expected a divisor of hidden_size 16");
    // Frequencies of heads without elements tell nothing.
    let mut empty = tensors(&META, 1);
    empty.push(zeros("rope.freqs", &[0]));
    let about = About { asked: Asked { n_heads: None, ..asked(1) }, ..About::default() };
    assert_eq!(error(&empty, about), "there is no params.json, and the shapes do not tell `n_heads`");
}

#[test]
fn no_tensor_is_missing_or_left_over() {
    let error = |tensors: &[(String, Tensor)]| auto(tensors, &params(PARAMS)).expect_err("wrong").to_string();
    let mut all = tensors(&META, 1);
    let last = all.pop().expect("it has some");
    assert_eq!(error(&all), "there is no tensor `layers.1.ffn_norm.weight`, which a model of 2 layers has");
    all.extend([last, zeros("lora\x1b", &[1])]);
    assert_eq!(error(&all), r"no part of this model: `lora\u{1b}`");
    let about = About { keep_extra: true, ..params(PARAMS) };
    let kept = auto(&all, &about).expect("it rides along");
    assert_eq!(kept.archive.records().len(), all.len());
    assert_eq!(kept.notes, [r"1 tensors are no part of the model and ride along: `lora\u{1b}`"]);
    all.pop();
    all.push(zeros("norm.weight", &[16]));
    assert_eq!(error(&all), "two tensors are called `norm.weight`");
}

#[test]
fn an_output_without_a_tensor_is_the_embeddings() {
    let mut all = tensors(&META, 1);
    all.retain(|(name, _)| name != "output.weight");
    let converted = auto(&all, &params(PARAMS)).expect("tied");
    assert_eq!(converted.notes, ["there is no `output.weight`: the embeddings are the output's matrix too"]);
    assert_eq!(converted.archive.records().len(), all.len());
}

#[test]
fn names_of_tensors_do_not_collide_with_the_modules_own() {
    let mut all = metas(1);
    all.extend(["__tensors__", "window", "window_"].map(|name| zeros(name, &[1])));
    let about = About { keep_extra: true, ..params(PARAMS) };
    let code = code(&auto(&all, &about).expect("they ride along"));
    assert!(code.contains("  window__ : int\n") && code.contains("self.__tensors____\n"), "{code}");
}
