//! Numbers of each scheme, compared with those that the method's own library computes on a CPU.
//!
//! `tests/conformance/quantized/cases.py` made the models and their `expected.json`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use byte_source::{Blob, hex, sha256};
use quantization::{QuantizationDocuments, QuantizedModel, recognise};
use tensor::{Tensor, Tensors};
use torch_import::{Checkpoint, Container};

/// Dtype, shape and SHA-256 of each tensor, by its name.
type Described = BTreeMap<String, (String, Vec<u64>, String)>;

pub(crate) fn models() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models");
    let entries = folder.read_dir().expect("it is checked in").map(|entry| entry.expect("an entry").path());
    // The values of a pickle are read by `open`, so that `tests/golden` has these.
    let mut models: Vec<PathBuf> = entries.filter(|model| !model.join("qmodel.pt").exists()).collect();
    models.sort();
    models
}

pub(crate) fn documents(model: &Path) -> QuantizationDocuments {
    let read = |name: &str| std::fs::read_to_string(model.join(name)).ok();
    QuantizationDocuments {
        config: read("config.json"),
        modelopt: read("hf_quant_config.json"),
        quanto: read("quanto_qmap.json"),
        gptq: read("quantize_config.json"),
        awq: read("quant_config.json"),
        ..QuantizationDocuments::default()
    }
}

pub(crate) fn stored(model: &Path) -> Tensors {
    let files = model.read_dir().expect("a folder").map(|entry| entry.expect("an entry").path());
    let is_weights = |path: &PathBuf| path.extension().is_some_and(|it| it == "safetensors" || it == "bin");
    let mut files: Vec<PathBuf> = files.filter(is_weights).collect();
    files.sort();
    let mut all = Tensors::default();
    for file in files {
        let container = Container::open(&file).expect("a checkpoint");
        let tensors = Checkpoint::read(&container).expect("a checkpoint").to_tensors();
        for entry in tensors.entries() {
            match entry {
                tensor::TensorEntry::Tensor(name, tensor) => all.push(name.to_owned(), tensor.clone()),
                tensor::TensorEntry::Quantized(compound, parts)
                | tensor::TensorEntry::Compound(compound, parts) => {
                    let kind = (compound.kind.clone(), compound.dtype, compound.shape.clone());
                    all.push_compound(compound.name.clone(), kind, parts.iter().cloned());
                }
                _ => panic!("an entry of another kind"),
            }
        }
    }
    all
}

pub(crate) fn quantized(model: &Path) -> (QuantizedModel, Tensors) {
    let tensors = stored(model);
    let documents = documents(model);
    let is_possible = quantization::is_possible(&documents, tensors.names());
    assert!(is_possible || !tensors.compounds().is_empty(), "{}", model.display());
    let found =
        recognise(&documents, &tensors).unwrap_or_else(|error| panic!("{}: {error}", model.display()));
    (found.unwrap_or_else(|| panic!("{} is quantized", model.display())), tensors)
}

pub(crate) fn bytes(tensor: &Tensor) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    tensor.gathered().write_to(&mut bytes).expect("it can be read");
    bytes
}

#[test]
fn numbers_are_those_of_the_library() {
    let mut wrong = Vec::new();
    for path in models() {
        let text = std::fs::read_to_string(path.join("expected.json")).expect("it is there");
        let expected: Described = serde_json::from_str(&text).expect("dtype, shape and hash");
        let (model, tensors) = quantized(&path);
        let dtype = documents(&path).dtype();
        let (tensors, _) = model.dequantize(&tensors, |it| dtype.unwrap_or(it.default_dtype)).expect("names");
        let describe = |(name, tensor): &(String, Tensor)| {
            let hash = hex(&sha256(&tensor.gathered(), &()).expect("it can be read"));
            (name.clone(), (tensor.dtype().to_string(), tensor.shape().to_vec(), hash))
        };
        let found: Described = tensors.iter().map(describe).collect();
        if found != expected {
            let bad: Vec<String> = expected
                .iter()
                .filter(|(name, value)| found.get(*name) != Some(value))
                .map(|(name, value)| format!("{name}: {value:?} but {:?}", found.get(name)))
                .chain(
                    found
                        .keys()
                        .filter(|name| !expected.contains_key(*name))
                        .map(|name| format!("extra {name}")),
                )
                .collect();
            wrong.push(format!("{}: {bad:#?}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
