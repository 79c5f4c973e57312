//! Checks of folders: which files count, and what an index may say.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use inspect::{CheckOptions, CheckReport, check};
use serde_json::json;

const CONFIG: &str = r#"{"model_type": "llama", "architectures": ["LlamaModel"], "num_hidden_layers": 1, "hidden_size": 2,
    "intermediate_size": 2, "num_attention_heads": 1, "vocab_size": 2, "head_dim": 2, "num_key_value_heads": 1}"#;
const LAYER: [&str; 7] = [
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
];

fn tensors() -> BTreeMap<String, Vec<u64>> {
    let mut tensors: BTreeMap<String, Vec<u64>> =
        LAYER.iter().map(|name| (format!("layers.0.{name}.weight"), vec![2, 2])).collect();
    for norm in ["layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm"] {
        tensors.insert(format!("{norm}.weight"), vec![2]);
    }
    tensors.insert("embed_tokens.weight".to_owned(), vec![2, 2]);
    tensors
}

fn write(file: &Path, tensors: &BTreeMap<String, Vec<u64>>) {
    let mut at = 0_u64;
    let rows = tensors.iter().map(|(name, shape)| {
        let len: u64 = shape.iter().product();
        let start = at;
        at = at.saturating_add(len);
        (name.clone(), json!({"dtype": "U8", "shape": shape, "data_offsets": [start, at]}))
    });
    let header = json!(rows.collect::<BTreeMap<_, _>>()).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(vec![0; usize::try_from(at).expect("few bytes")]);
    fs::write(file, bytes).expect("a folder for tests");
}

/// A folder with two shards and their index.
fn shards() -> (tempfile::TempDir, BTreeMap<String, String>) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("config.json"), CONFIG).expect("a folder for tests");
    let mut index = BTreeMap::new();
    for number in 0..2_usize {
        let file = format!("model-{:05}-of-00002.safetensors", number.saturating_add(1));
        let share: BTreeMap<_, _> = tensors().into_iter().skip(number).step_by(2).collect();
        index.extend(share.keys().map(|name| (name.clone(), file.clone())));
        write(&folder.path().join(file), &share);
    }
    write_index(folder.path(), &index);
    (folder, index)
}

fn write_index(folder: &Path, index: &BTreeMap<String, String>) {
    let text = json!({ "weight_map": index }).to_string();
    fs::write(folder.join("model.safetensors.index.json"), text).expect("a folder for tests");
}

fn report(input: &Path) -> CheckReport {
    check(&CheckOptions::new(input), &()).expect("a folder that can be read")
}

#[test]
fn a_whole_folder_has_no_findings() {
    let (folder, _) = shards();
    let found = report(folder.path());
    assert!(found.whole, "{found:?}");
    assert_eq!((found.files, found.tensors, found.expected), (2, 11, 11));
    assert!(report(&folder.path().join("model.safetensors.index.json")).whole);
    // A whole file is what loaders read, whatever the index says.
    write(&folder.path().join("model.safetensors"), &tensors());
    write_index(folder.path(), &BTreeMap::from([("other".to_owned(), "other.safetensors".to_owned())]));
    assert!(report(folder.path()).whole);
    assert!(report(&folder.path().join("model.safetensors")).whole);
}

#[test]
fn an_index_is_compared_with_the_files() {
    let (folder, index) = shards();
    let [first, second] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    let of = |file: &str| -> Vec<String> {
        index.iter().filter(|(_, found)| *found == file).map(|(name, _)| name.clone()).collect()
    };

    let mut without: BTreeMap<_, _> = index.clone();
    without.retain(|_, file| file == first);
    write_index(folder.path(), &without);
    let found = report(folder.path());
    assert!(found.missing.is_empty() && !found.whole);
    assert_eq!(found.unindexed[0].tensors, of(second));

    let name = of(first).remove(0);
    let mut moved = index.clone();
    moved.insert(name.clone(), second.to_owned());
    write_index(folder.path(), &moved);
    assert_eq!(report(folder.path()).stale, std::slice::from_ref(&name));

    fs::remove_file(folder.path().join("model.safetensors.index.json")).expect("the index");
    assert_eq!(report(folder.path()).unindexed.len(), 2);
    write_index(folder.path(), &index);

    let mut both: BTreeMap<_, _> = tensors().into_iter().skip(1).step_by(2).collect();
    both.insert(name.clone(), tensors()[&name].clone());
    write(&folder.path().join(second), &both);
    let found = report(folder.path());
    assert_eq!(
        (found.twice[0].name.as_str(), found.twice[0].files.as_slice()),
        (name.as_str(), [first, second].map(str::to_owned).as_slice())
    );

    fs::remove_file(folder.path().join(second)).expect("the shard");
    let found = report(folder.path());
    let mut missing: Vec<String> = found.missing.iter().map(|tensor| tensor.name.clone()).collect();
    missing.sort_unstable();
    assert_eq!(missing, of(second));
    assert!(found.stale.is_empty());
}

#[test]
fn without_weights_all_is_missing_and_without_a_configuration_nothing_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = |folder: &Path| check(&CheckOptions::new(folder), &()).expect_err("nothing to compare with");
    assert_eq!(error(folder.path()).code(), "inspect::NoConfiguration");
    assert!(check(&CheckOptions::new(folder.path().join("absent")), &()).is_err());
    fs::write(folder.path().join("config.json"), CONFIG).expect("a folder for tests");
    assert_eq!(report(folder.path()).missing.len(), 11);
    fs::write(folder.path().join("config.json"), "{}").expect("a folder for tests");
    assert_eq!(error(folder.path()).code(), "inspect::Configuration");
}
