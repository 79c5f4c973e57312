//! Models of the table of families: other names, the text part, completion by a base, and what is not whole.

#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::path::Path;

use crate::carton_tools::{ok, refused, scratch, write};
use crate::cli::json;
use crate::made::write_safetensors;

const MIXTRAL: &str = r#"{"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_hidden_layers": 2, "hidden_size": 4,
    "intermediate_size": 6, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 10, "num_local_experts": 2}"#;
pub(crate) const LLAVA: &str = r#"{"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "tie_word_embeddings": true,
    "text_config": {"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 4, "intermediate_size": 6, "num_attention_heads": 2,
    "vocab_size": 10}, "vision_config": {"model_type": "clip_vision_model", "num_hidden_layers": 1, "hidden_size": 4,
    "intermediate_size": 6, "image_size": 4, "patch_size": 2}}"#;

/// Writes a folder with all tensors that its configuration asks for and `keep` accepts. Each tensor has a number of its own.
pub(crate) fn make(root: &Path, folder: &str, config: &str, keep: impl Fn(&str) -> bool) {
    let path = root.join(folder);
    write(path.join("config.json"), config);
    let all = json(root, &["check", "--json", folder]);
    let rows = all["missing"].as_array().expect("a list").iter();
    let all: Vec<(String, Vec<u64>)> = rows
        .map(|row| {
            let shape = row["shape"].as_array().expect("a list").iter();
            (
                row["name"].as_str().expect("a name").to_owned(),
                shape.filter_map(serde_json::Value::as_u64).collect(),
            )
        })
        .collect();
    // What is left out keeps its number.
    let whole: Vec<(&str, &[u64])> =
        all.iter().map(|(name, shape)| (name.as_str(), shape.as_slice())).collect();
    write_safetensors(&path.join("all.safetensors"), &[], &whole);
    number_elements(&path.join("all.safetensors"));
    let patterns: Vec<&str> = whole.iter().map(|(name, _)| *name).filter(|name| keep(name)).collect();
    let mut args = vec!["-q", "all.safetensors", "-o", "model.safetensors"];
    args.extend(patterns.iter().flat_map(|name| ["--include", name]));
    ok(&path, &args);
    std::fs::remove_file(path.join("all.safetensors")).expect("it was written");
}

/// Makes the elements of each tensor differ.
fn number_elements(path: &Path) {
    let mut bytes = std::fs::read(path).expect("it was written");
    let header = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    let data = usize::try_from(header).expect("a small header").saturating_add(8);
    for (byte, number) in bytes[data..].iter_mut().zip((0..7).cycle()) {
        *byte = byte.wrapping_add(number);
    }
    write(path.to_owned(), bytes);
}

/// Names, shapes and hashes of all tensors.
fn tensors(root: &Path, path: &str) -> Vec<String> {
    let listed = json(root, &["inspect", "--sha256", path, "--json"]);
    let rows = listed["tensors"].as_array().expect("a list").iter();
    rows.map(|row| format!("{} {} {}", row["name"], row["shape"], row["sha256"])).collect()
}

/// What is said, without durations and paths of this run.
fn said(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with("size ")).collect::<Vec<_>>().join("\n")
}

#[test]
fn names_in_memory_come_back() {
    let scratch = scratch();
    let root = scratch.path();
    make(root, "mixtral", MIXTRAL, |_| true);
    let there = ok(root, &["mixtral", "--names", "modules", "-o", "modules"]);
    ok(root, &["modules", "--names", "hf", "-o", "back"]);
    assert_eq!(tensors(root, "back"), tensors(root, "mixtral"));
    let same = ok(root, &["modules", "--names", "modules", "-o", "same"]);
    assert_eq!(tensors(root, "same"), tensors(root, "modules"));
    let listed: Vec<String> = json(root, &["inspect", "modules", "--json"])["tensors"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| format!("{} {}", row["name"], row["shape"]))
        .collect();
    ok(root, &["check", "modules"]);
    ok(root, &["verify", "modules", "--against", "mixtral", "--names", "modules"]);
    insta::assert_snapshot!([said(&there), said(&same), listed.join("\n")].join("\n\n"));
}

#[test]
fn an_expert_of_another_dtype_is_named() {
    let scratch = scratch();
    let root = scratch.path();
    make(root, "mixtral", MIXTRAL, |_| true);
    let expert = "model.layers.1.block_sparse_moe.experts.1.w2.weight";
    let (first, second) = ("two/model-00001-of-00002.safetensors", "two/model-00002-of-00002.safetensors");
    write(root.join("two/config.json"), MIXTRAL);
    ok(root, &["-q", "mixtral/model.safetensors", "--exclude", expert, "-o", first]);
    ok(root, &["-q", "mixtral/model.safetensors", "--include", expert, "-o", second]);
    let file = std::fs::read(root.join(second)).expect("it was written");
    let bytes = file.windows(4).position(|bytes| bytes == b"\"U8\"").expect("a dtype");
    write(root.join(second), [&file[..bytes], b"\"I8\"", &file[bytes + 4..]].concat());
    let text = refused(root, &["two", "--names", "modules", "-o", "out"]);
    assert!(text.contains(expert) && text.contains("int8"), "{text}");
}

#[test]
fn what_is_not_whole_is_refused_by_its_names() {
    let scratch = scratch();
    let root = scratch.path();
    make(root, "lost", MIXTRAL, |name| name != "model.layers.1.block_sparse_moe.experts.1.w3.weight");
    let mut text = String::new();
    for args in [
        &["lost", "--names", "hf", "-o", "out"][..],
        &["lost", "--names", "modules", "-o", "out"],
        &["lost", "--names", "modules", "--incomplete", "-o", "out"],
        &["lost", "-o", "out.carton"],
        &["lost", "-o", "out.gguf"],
    ] {
        text += &refused(root, args);
    }
    assert!(!root.join("out").exists() && !root.join("out.carton").exists());
    text += &said(&ok(root, &["lost", "--names", "hf", "--incomplete", "-o", "incomplete"]));
    text += "\n";
    text += &said(&ok(root, &["-q", "lost", "--incomplete", "-o", "incomplete.carton"]));
    insta::assert_snapshot!(text);
    let header = std::fs::read(root.join("incomplete/model.safetensors")).expect("it was written");
    let header = String::from_utf8_lossy(&header);
    assert!(header.contains(r#""torch2carton.incomplete":"missing: model.layers.1."#), "{header}");
    ok(root, &["-q", "unpack", "incomplete.carton", "-o", "unpacked"]);
    let toml = std::fs::read_to_string(root.join("unpacked/carton.toml")).expect("it was written");
    assert!(toml.contains("incomplete = \"missing: model.layers.1."), "{toml}");
    // A selection is asked for.
    ok(root, &["lost", "--names", "hf", "--exclude", "lm_head*", "-o", "selected"]);
}

#[test]
fn the_text_part_is_a_model_of_its_own() {
    let scratch = scratch();
    let root = scratch.path();
    make(root, "llava", LLAVA, |_| true);
    write(root.join("llava/preprocessor_config.json"), "{}");
    let text = ok(root, &["llava", "--part", "text", "-o", "text"]);
    let config = std::fs::read_to_string(root.join("text/config.json")).expect("it was written");
    ok(root, &["check", "text"]);
    make(root, "llama", MIXTRAL, |_| true);
    let other = refused(root, &["llama", "--part", "text", "-o", "out"]);
    let both = refused(root, &["llava", "--part", "text", "--complete-from", "llava", "-o", "out"]);
    insta::assert_snapshot!([said(&text), config, other, both].join("\n"));
    assert!(!root.join("out").exists() && !root.join("text/preprocessor_config.json").exists());
}

#[test]
fn what_is_lost_comes_from_a_base_that_is_one() {
    let scratch = scratch();
    let root = scratch.path();
    make(root, "whole", MIXTRAL, |_| true);
    ok(root, &["whole", "--names", "modules", "-o", "base"]);
    make(root, "lost", MIXTRAL, |name| !name.starts_with("model.layers.1.block_sparse_moe.experts.1."));
    let text = ok(root, &["lost", "--complete-from", "base", "-o", "out"]);
    assert_eq!(tensors(root, "out"), tensors(root, "whole"));
    ok(root, &["check", "out"]);
    let mut text = said(&text);
    make(root, "other", &MIXTRAL.replace("\"num_hidden", "\"rms_norm_eps\": 1, \"num_hidden"), |_| true);
    make(root, "short", MIXTRAL, |name| !name.contains("experts.1.w2"));
    make(root, "large", &MIXTRAL.replace("\"vocab_size\": 10", "\"vocab_size\": 12"), |_| true);
    for base in ["other", "short", "large", "lost"] {
        text += "\n";
        text += &refused(root, &["lost", "--complete-from", base, "-o", "no"]);
    }
    assert!(!root.join("no").exists());
    insta::assert_snapshot!(text);
}
