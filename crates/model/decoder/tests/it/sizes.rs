//! The sizes of decoders with Meta's names, and their disagreements with documents and given numbers.

use decoder::{
    Assignment, DecoderOptions, Detected, LayoutOwner, ModelDocuments, Overrides, Problem, Weight,
    build_decoder, detect,
};
use tensor::Tensor;

use crate::fixtures::{tensors, zeros};

const PARAMS: &str =
    r#"{"dim": 16, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "multiple_of": 8, "vocab_size": -1}"#;

type List = [(String, Tensor)];

fn meta(shards: u64) -> Vec<(String, Tensor)> {
    let mut all = tensors(LayoutOwner::Meta, shards);
    all.push(zeros("rope.freqs", &[2]));
    all
}

fn params(text: &str) -> DecoderOptions {
    let documents = ModelDocuments { params: Some(text.to_owned()), ..ModelDocuments::default() };
    DecoderOptions { documents, ..DecoderOptions::default() }
}

fn given(given: Overrides) -> DecoderOptions {
    DecoderOptions { overrides: given, ..DecoderOptions::default() }
}

/// The assignment of a model's weights, and everything that is known of it as text.
fn outcome(tensors: &List, options: &DecoderOptions) -> decoder::Result<(Assignment, String)> {
    match detect(&tensors.to_vec().into(), options)? {
        Detected::Model(decoder) => {
            let assignment = decoder.assign(&tensors.to_vec().into(), options.keep_extra)?;
            Ok((assignment, format!("{decoder:?}")))
        }
        Detected::Weights { no_model_reason: why, .. } => panic!("{why}"),
    }
}

#[test]
fn shapes_reveal_the_number_of_shards() {
    let count = |tensors: &List, text: &str| match outcome(tensors, &params(text)) {
        Err(error) => match error.downcast() {
            Ok(Problem::Shard { count }) => Some(count),
            _ => None,
        },
        _ => None,
    };
    assert_eq!([1, 2, 4].map(|shards| count(&meta(shards), PARAMS)), [None, Some(2), Some(4)]);
    assert_eq!(count(&meta(1), r#"{"n_heads": 4, "head_dim": 8}"#), Some(2));
    assert_eq!(count(&meta(1), "{}"), None);
    // Rows of `wq` and columns of `wo` have to be the same fraction.
    let cut = |rows: u64, columns: u64| {
        let mut all = meta(1);
        for (name, tensor) in &mut all {
            let shape = match name.rsplit('.').nth(1) {
                Some("wq") => [rows, 16],
                Some("wo") => [16, columns],
                _ => continue,
            };
            *tensor = zeros("", &shape).1;
        }
        count(&all, PARAMS)
    };
    assert_eq!([cut(8, 8), cut(8, 16), cut(16, 8), cut(6, 6)], [Some(2), None, None, None]);
}

#[test]
fn disagreements_name_both_sides() {
    let changed = |from: &str, to: &str| {
        outcome(&meta(1), &params(&PARAMS.replace(from, to))).expect_err(to).to_string()
    };
    for (from, to, expected) in [
        (
            r#""n_layers": 2"#,
            r#""n_layers": 3"#,
            "params.json: `n_layers` is 3, expected 2, the number of layers in the checkpoint",
        ),
        (r#""n_heads": 4"#, r#""n_heads": 3"#, "params.json: `n_heads` is 3, expected a divisor of dim 16"),
        (
            "-1",
            "31",
            "tensor `tok_embeddings.weight`: shape [32, 16], expected [31, 16] from vocab_size 31 and dim 16",
        ),
        (
            r#""n_kv_heads": 2"#,
            r#""n_kv_heads": 4"#,
            "tensor `layers.0.attention.wk.weight`: shape [8, 16], expected [16, 16] from n_kv_heads 4 (of 4 each) and dim 16",
        ),
        (
            r#""multiple_of": 8"#,
            r#""multiple_of": 64"#,
            "tensor `layers.0.feed_forward.w1.weight`: shape [48, 16], expected [64, 16] from a feed-forward width of 64 and dim 16",
        ),
        (
            r#""n_heads": 4"#,
            r#""n_heads": 8"#,
            "tensor `layers.0.attention.wk.weight`: shape [8, 16], expected [4, 16] from n_kv_heads 2 (of 2 each) and dim 16",
        ),
    ] {
        assert_eq!(changed(from, to), expected);
    }
}

#[test]
fn sizes_of_zero_are_refused() {
    let changed = |from: &str, to: &str, name: &str, shape: &[u64]| {
        let mut tensors = meta(1);
        tensors.retain(|(known, _)| known != name);
        tensors.push(zeros(name, shape));
        outcome(&tensors, &params(&PARAMS.replace(from, to))).expect_err(to).to_string()
    };
    let no_heads = changed(r#""n_heads": 4"#, r#""n_heads": 0, "head_dim": 4"#, "norm.weight", &[16]);
    assert_eq!(no_heads, "params.json: `n_heads` is 0, expected at least 1");
    let no_vocab = changed("", "", "tok_embeddings.weight", &[0, 16]);
    assert_eq!(no_vocab, "params.json: `vocab_size` is 0, expected at least 1");
    let no_width = changed(
        r#""dim": 16, "n_layers": 2, "n_heads": 4"#,
        r#""dim": 0, "n_layers": 2, "n_heads": 4, "head_dim": 4"#,
        "norm.weight",
        &[16],
    );
    assert_eq!(no_width, "params.json: `dim` is 0, expected at least 1");
    let no_hidden = changed(r#""multiple_of": 8, "#, "", "layers.0.feed_forward.w1.weight", &[0, 16]);
    assert_eq!(no_hidden, "params.json: `feed-forward width` is 0, expected at least 1");
}

#[test]
fn facts_that_shapes_do_not_reveal_have_to_be_given() {
    let mut plain = meta(1);
    let error = |tensors: &List, options: &DecoderOptions| {
        build_decoder("llama", &tensors.to_vec().into(), options).expect_err("open").to_string()
    };
    let nothing = DecoderOptions::default();
    let open = |facts: &str| {
        format!("there is no params.json, and {facts} cannot be inferred from the tensor shapes")
    };
    assert_eq!(error(&plain, &nothing), open("`rope_theta` and `norm_eps`"));
    plain.pop();
    assert_eq!(error(&plain, &nothing), open("`n_heads`, `rope_theta` and `norm_eps`"));
    assert_eq!(
        error(&plain, &params("{}")),
        "params.json has no `n_heads`, which cannot be inferred from the tensor shapes"
    );
    let heads = Overrides { n_heads: Some(4), ..Overrides::default() };
    let all = given(Overrides { rope_theta: Some(1e4), norm_eps: Some(1e-5), ..heads });
    assert!(outcome(&plain, &all).is_ok());
    let error = detect(&plain.clone().into(), &given(heads)).expect_err("open").to_string();
    assert_eq!(error, open("`rope_theta` and `norm_eps`"));
    let error = detect(&[zeros("w", &[1])].to_vec().into(), &all).expect_err("not a model").to_string();
    assert_eq!(error, "these tensors are not a model that can run: no known architecture");
}

#[test]
fn given_numbers_fill_in_what_params_json_omits() {
    let whole = r#""dim": 16, "n_kv_heads": 2, "norm_eps": 1e-6, "rope_theta": 5e5"#;
    let heads = |n_heads| Overrides { n_heads: Some(n_heads), ..Overrides::default() };
    let factor = |factor| Overrides { rope_factor: Some(factor), ..Overrides::default() };
    let outcome = |more: &str, given: Overrides| {
        let options = DecoderOptions { overrides: given, ..params(&format!("{{{whole}, {more}}}")) };
        outcome(&tensors(LayoutOwner::Meta, 1), &options).map(|(_, decoder)| decoder)
    };
    let four = r#""n_heads": 4"#;
    let unscaled = r#""n_heads": 4, "use_scaled_rope": false"#;
    let scaled = r#""n_heads": 4, "use_scaled_rope": true, "rope_scaling_factor": 8"#;
    let open = r#""n_heads": 4, "use_scaled_rope": true"#;
    for (more, given, expected) in [
        (four, heads(2), "n_heads is given as 2, but params.json says 4"),
        (
            four,
            Overrides { rope_theta: Some(1e4), ..Overrides::default() },
            "rope_theta is given as 10000, but params.json says 500000",
        ),
        (
            four,
            Overrides { norm_eps: Some(1e-5), ..Overrides::default() },
            "norm_eps is given as 1e-5, but params.json says 1e-6",
        ),
        (unscaled, factor(8.0), "rope_factor is given as 8, but params.json says `use_scaled_rope` false"),
        (scaled, factor(32.0), "rope_factor is given as 32, but params.json says 8"),
    ] {
        assert_eq!(outcome(more, given).expect_err("two answers").to_string(), expected);
    }
    let same = outcome(scaled, Overrides::default()).expect("right");
    for more in [scaled, open, four] {
        assert_eq!(outcome(more, factor(8.0)).expect("agreed"), same, "{more}");
    }
    let same = outcome(four, Overrides::default()).expect("right");
    assert_ne!(same, outcome(scaled, Overrides::default()).expect("right"));
    for more in [four, r#""n_heads": null"#] {
        assert_eq!(outcome(more, heads(4)).expect("agreed"), same, "{more}");
    }
}

#[test]
fn errors_about_given_heads_do_not_blame_a_document() {
    let heads = |n_heads| Overrides {
        n_heads: Some(n_heads),
        rope_theta: Some(1e4),
        norm_eps: Some(1e-5),
        ..Overrides::default()
    };
    let error = |tensors: &List, options: DecoderOptions| {
        let error = build_decoder("llama", &tensors.to_vec().into(), &options).expect_err("no such heads");
        assert_eq!(error.location().path, None, "{error}");
        error.to_string()
    };
    let plain = tensors(LayoutOwner::Meta, 1);
    assert_eq!(error(&plain, given(heads(5))), "n_heads is given as 5, expected a divisor of dim 16");
    assert_eq!(
        error(&plain, given(heads(16))),
        "n_heads is given as 16, expected a number that makes the size of a head even, not 1"
    );
    assert_eq!(
        error(&plain, given(heads(1))),
        "n_heads is given as 1, expected a number that makes a head no larger than the first dimension of `layers.0.attention.wk.weight`"
    );
    let open = r#"{"norm_eps": 1e-5, "n_kv_heads": 3}"#;
    assert_eq!(
        error(&plain, DecoderOptions { overrides: heads(4), ..params(open) }),
        "n_heads is given as 4, expected a multiple of n_kv_heads 3"
    );
    let hf = tensors(LayoutOwner::HuggingFace, 1);
    assert_eq!(error(&hf, given(heads(5))), "n_heads is given as 5, expected a divisor of hidden_size 16");
    // Frequencies without elements reveal nothing about the heads.
    let mut empty = tensors(LayoutOwner::Meta, 1);
    empty.push(zeros("rope.freqs", &[0]));
    let options = given(Overrides { n_heads: None, ..heads(1) });
    assert_eq!(
        error(&empty, options),
        "there is no params.json, and `n_heads` cannot be inferred from the tensor shapes"
    );
}

#[test]
fn missing_and_unused_tensors_are_errors() {
    let error = |tensors: &List| outcome(tensors, &params(PARAMS)).expect_err("wrong").to_string();
    let mut all = tensors(LayoutOwner::Meta, 1);
    let last = all.pop().expect("it has some");
    assert_eq!(error(&all), "there is no tensor `layers.1.ffn_norm.weight`, which a model of 2 layers needs");
    all.extend([last, zeros("lora\x1b", &[1])]);
    assert_eq!(error(&all), r"the model does not use `lora\u{1b}`");
    let keep = DecoderOptions { keep_extra: true, ..params(PARAMS) };
    let (assignment, _) = outcome(&all, &keep).expect("it is kept");
    let notes: Vec<String> = assignment.notes.iter().map(ToString::to_string).collect();
    assert_eq!(notes, [r"1 tensor that the model does not use is kept: `lora\u{1b}`"]);
    all.pop();
    all.push(zeros("norm.weight", &[16]));
    assert_eq!(error(&all), "two tensors are called `norm.weight`");
}

#[test]
fn the_embeddings_replace_a_missing_output_matrix() {
    let mut all = tensors(LayoutOwner::Meta, 1);
    all.retain(|(name, _)| name != "output.weight");
    let (assignment, _) = outcome(&all, &params(PARAMS)).expect("tied");
    let notes: Vec<String> = assignment.notes.iter().map(ToString::to_string).collect();
    assert_eq!(notes, ["there is no `output.weight`: the embeddings are used as the output matrix"]);
    let places: Vec<_> = assignment.weights.iter().map(|it| (it.weight, it.index)).take(3).collect();
    assert_eq!(places, [(Weight::Embedding, 0), (Weight::Norm, 1), (Weight::Output, 0)]);
}
