//! The `config.json` of published models, with the names and shapes of their tensors: one file each in `models/`.
//!
//! `config` is the published document, `tensors` are the names and shapes of the checkpoint (`{}` is each layer, from
//! `layers` if that is there), `record` is what differs from a plain LLaMA in [`Decoder::record`], and `notes` are what a
//! user sees.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use proptest::sample::{Index, select};

use decoder::{Assignment, Decoder, DecoderOptions, Detected, ModelDocuments, Weight, detect};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tensor::{Dtype, Storage, Tensor};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    config: Map<String, Value>,
    tensors: Map<String, Value>,
    record: Map<String, Value>,
    #[serde(default)]
    notes: Vec<String>,
}

fn models() -> Vec<(PathBuf, Model)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models");
    let files = fs::read_dir(folder).expect("the folder is there").map(|file| file.expect("readable").path());
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("readable");
        let model = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path, model)
    };
    let models: Vec<_> = files.map(read).collect();
    assert!(!models.is_empty());
    models
}

/// The tensors, each a view of one number.
fn tensors(model: &Model) -> Vec<(String, Tensor)> {
    let size = |key: &str| model.config.get(key).and_then(Value::as_u64).unwrap_or(1);
    let experts = size("num_local_experts").max(size("num_experts"));
    let mut all = Vec::new();
    for (name, shape) in &model.tensors {
        let shape: Vec<u64> = serde_json::from_value(shape.clone()).expect("a shape");
        let layers = if name.contains("{}") { size("num_hidden_layers") } else { 1 };
        for layer in 0..layers {
            let name = name.replace("{}", &layer.to_string());
            let experts = if name.contains("{e}") { experts } else { 1 };
            for expert in 0..experts {
                let storage = Storage::owned(vec![0; 2]);
                let stride = vec![0; shape.len()];
                let tensor =
                    Tensor::new(Dtype::BFloat16, shape.clone(), stride, 0, storage).expect("one number");
                all.push((name.replace("{e}", &expert.to_string()), tensor));
            }
        }
    }
    all
}

fn decoder(model: &Model, tensors: &[(String, Tensor)]) -> decoder::Result<(Box<Decoder>, Assignment)> {
    let config = Some(Value::Object(model.config.clone()).to_string());
    let options = DecoderOptions {
        documents: ModelDocuments { config, ..ModelDocuments::default() },
        ..DecoderOptions::default()
    };
    match detect(&tensors.to_vec().into(), &options)? {
        Detected::Model(decoder) => {
            let assignment = decoder.assign(&tensors.to_vec().into(), false)?;
            Ok((decoder, assignment))
        }
        Detected::Weights { no_model_reason: why, .. } => panic!("{why}"),
    }
}

/// Replaces what `changes` has.
fn merge(base: &mut Value, changes: &Value) {
    match (base, changes) {
        (Value::Object(base), Value::Object(changes)) => {
            for (key, value) in changes {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, changes) => *base = changes.clone(),
    }
}

#[test]
fn published_models_are_what_their_documents_say() {
    for (path, model) in models() {
        let tensors = tensors(&model);
        let found = decoder(&model, &tensors);
        let (decoder, assignment) = found.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let record: Value = serde_json::from_str(&decoder.record(1)).expect("JSON");
        let mut expected = json!({
            "code_version": 1,
            "architecture": model.config["model_type"],
            "dim": model.config["hidden_size"],
            "n_layers": model.config["num_hidden_layers"],
            "n_heads": model.config["num_attention_heads"],
            "n_kv_heads": model.config["num_key_value_heads"],
            "head_dim": decoder.head_dim(),
            "rotated": decoder.head_dim(),
            "hidden": model.config["intermediate_size"],
            "vocab": model.config["vocab_size"],
            "norm_eps": model.config.get("rms_norm_eps").unwrap_or(&Value::Null),
            "ropes": [{"theta": 10000.0, "scaling": null}],
            "rope_of_layer": null,
            "windows": {"size": null, "layers": "All"},
            "biases": {"qkv": false, "output": false, "feed_forward": false},
            "block": decoder::Block::default(),
        });
        merge(&mut expected, &Value::Object(model.record));
        assert_eq!(record, expected, "{}", path.display());
        let notes: Vec<String> = assignment.notes.iter().map(ToString::to_string).collect();
        assert_eq!(notes, model.notes, "{}", path.display());

        // Every tensor is a weight, and every weight is as large as its tensor or a part of one.
        let mut used: Vec<usize> = assignment.weights.iter().map(|assigned| assigned.index).collect();
        used.sort_unstable();
        used.dedup();
        assert_eq!(used.len(), tensors.len());
        let listed = tensors.clone().into();
        for assigned in &assignment.weights {
            let tensor = assigned.tensor(&listed).expect("it has one");
            assert_eq!(tensor.shape(), decoder.part_dimensions(assigned.weight), "{:?}", assigned.weight);
        }
    }
}

#[test]
fn a_record_makes_the_same_decoder() {
    for (path, model) in models() {
        let tensors = tensors(&model);
        let (decoder, assignment) = decoder(&model, &tensors).expect("it is one");
        let text = decoder.record(1);
        let again = Decoder::from_record(&text, &tensors.clone().into())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(again.record(1), text);
        let places = |assignment: &Assignment| {
            assignment.weights.iter().map(|it| (it.weight, it.index)).collect::<Vec<(Weight, usize)>>()
        };
        let again = again.assign(&tensors.clone().into(), false).expect("the same tensors");
        assert_eq!(places(&again), places(&assignment));
    }
}

#[test]
fn experts_without_a_width_are_refused() {
    let (_, model) =
        models().into_iter().find(|(path, _)| path.ends_with("qwen1.5-moe-a2.7b.json")).expect("there");
    let tensors = tensors(&model);
    let (decoder, _) = decoder(&model, &tensors).expect("it is one");
    let record = decoder.record(1);
    // The width of the experts, and that of the expert that all tokens go through.
    for (from, to) in
        [(r#""hidden":1408"#, r#""hidden":0"#), (r#""hidden":5632,"gated""#, r#""hidden":0,"gated""#)]
    {
        assert!(record.contains(from), "{record}");
        let error = Decoder::from_record(&record.replace(from, to), &tensors.clone().into());
        let error = error.expect_err("no width").to_string();
        assert!(error.contains("`moe_intermediate_size` is 0, expected at least 1"), "{error}");
    }
}

/// Values that a hostile document may have.
const VALUES: [&str; 18] = [
    "null",
    "true",
    "false",
    "0",
    "-1",
    "1",
    "2",
    "7",
    "1e308",
    "-1e308",
    "1e-308",
    "4294967296",
    "18446744073709551615",
    "\"\"",
    "\"gelu\"",
    "[]",
    "[1e308]",
    "{}",
];

/// Keys that published documents do not have, or few of them.
const KEYS: [&str; 10] = [
    "rope_scaling.rope_type",
    "rope_scaling.factor",
    "rope_scaling.type",
    "rope_parameters",
    "rope_parameters.full_attention",
    "partial_rotary_factor",
    "head_dim",
    "sliding_window_pattern",
    "no_rope_layer_interval",
    "decoder_sparse_step",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever values a document has, it is refused or it makes a decoder whose record makes it again.
    #[test]
    fn hostile_documents_do_no_harm(
        at in any::<Index>(),
        changes in prop::collection::vec((any::<Index>(), select(&VALUES[..])), 1..4),
        scaling in select(&["default", "linear", "dynamic", "yarn", "longrope", "llama3"][..]),
    ) {
        let mut models = models();
        models.sort_by(|one, other| one.0.cmp(&other.0));
        let (_, mut model) = models.swap_remove(at.index(models.len()));
        let all = tensors(&model);
        let scaled = json!({"rope_type": scaling, "factor": 2, "low_freq_factor": 1, "high_freq_factor": 4});
        model.config.insert("rope_scaling".to_owned(), scaled);
        let keys: Vec<String> = model.config.keys().cloned().chain(KEYS.map(str::to_owned)).collect();
        for (key, value) in changes {
            let value: Value = serde_json::from_str(value).expect("JSON");
            match key.get(&keys).split_once('.') {
                None => { model.config.insert(key.get(&keys).clone(), value); }
                Some((outer, inner)) => {
                    let object = model.config.entry(outer).or_insert_with(|| json!({}));
                    if let Some(object) = object.as_object_mut() {
                        object.insert(inner.to_owned(), value);
                    }
                }
            }
        }
        let config = Some(Value::Object(model.config).to_string());
        let options = DecoderOptions { documents: ModelDocuments { config, ..ModelDocuments::default() }, ..DecoderOptions::default() };
        if let Ok(Detected::Model(decoder)) = detect(&all.clone().into(), &options) {
            let text = decoder.record(1);
            prop_assert_eq!(Decoder::from_record(&text, &all.clone().into()).expect("its own").record(1), text);
            for rope in decoder.ropes() {
                let frequencies = rope.frequencies(decoder.rotated(), 1000);
                prop_assert_eq!(frequencies.len() as u64, decoder.rotated() / 2);
                prop_assert!(frequencies.iter().all(|frequency| frequency.is_finite()), "{:?}", rope);
            }
        }
    }
}

#[test]
fn the_table_of_families_has_the_names_of_each_architecture() {
    for name in decoder::architectures() {
        assert!(!decoder::TensorNames::hugging_face(name).is_empty(), "{name}");
    }
}
