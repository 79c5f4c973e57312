//! The `config.json` of published models, with the names and shapes of their tensors: one file each in `models/`.
//!
//! `config` is the published document, `tensors` are the names and shapes of the checkpoint (`{}` is each layer, from
//! `layers` if that is there), `record` is what differs from a plain LLaMA in [`Decoder::record`], and `notes` are what a
//! user sees.

use std::fs;
use std::path::{Path, PathBuf};

use decoder::{Assignment, Decoder, Detected, Documents, Options, Weight, detect};
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
    let options = Options { documents: Documents { config, ..Documents::default() }, ..Options::default() };
    match detect(tensors, &options)? {
        Detected::Model(decoder) => {
            let assignment = decoder.assign(tensors, false)?;
            Ok((decoder, assignment))
        }
        Detected::Weights { why, .. } => panic!("{why}"),
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
        let record: Value = serde_json::from_str(&decoder.record()).expect("JSON");
        let mut expected = json!({
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
        for assigned in &assignment.weights {
            let tensor = assigned.tensor(&tensors).expect("it has one");
            assert_eq!(tensor.shape(), decoder.shape(assigned.weight), "{:?}", assigned.weight);
        }
    }
}

#[test]
fn a_record_makes_the_same_decoder() {
    for (path, model) in models() {
        let tensors = tensors(&model);
        let (decoder, assignment) = decoder(&model, &tensors).expect("it is one");
        let text = decoder.record();
        let again = Decoder::from_record(&text, &tensors)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(again.record(), text);
        let places = |assignment: &Assignment| {
            assignment.weights.iter().map(|it| (it.weight, it.index)).collect::<Vec<(Weight, usize)>>()
        };
        let again = again.assign(&tensors, false).expect("the same tensors");
        assert_eq!(places(&again), places(&assignment));
    }
}
