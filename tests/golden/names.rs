//! `--names` and `--rename`: the files that are written, the notes and summaries, and the errors.

#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::Path;

use crate::carton_tools::{ok, refused, scratch, write};
use crate::made::{dict, tensor, write_pth, write_safetensors};
use crate::program::folder;

/// The folder of the small LLaMA with Meta's names.
fn llama() -> String {
    folder().join("checkpoints/llama_tiny").display().to_string()
}

/// What is printed, without the line that has a duration, and the documents in the folder.
fn made(root: &Path, args: &[&str], documents: &[&str]) -> String {
    let mut text = ok(root, args);
    text = text.lines().filter(|line| !line.trim_start().starts_with("size ")).collect::<Vec<_>>().join("\n");
    for document in documents {
        let read = std::fs::read_to_string(root.join(document)).expect("it was written");
        write!(text, "\n--- {document}\n{read}").expect("a String grows");
    }
    text
}

/// Names, shapes and hashes of all tensors.
fn tensors(root: &Path, path: &str) -> String {
    let listed = crate::cli::json(root, &["inspect", "--sha256", path, "--json"]);
    let mut rows: Vec<String> = listed["tensors"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| format!("{} {} {} {}", row["name"], row["dtype"], row["shape"], row["sha256"]))
        .collect();
    rows.sort();
    rows.join("\n")
}

#[test]
fn a_llama_gets_the_other_layout_and_comes_back() {
    let scratch = scratch();
    let root = scratch.path();
    let there = made(root, &[&llama(), "--names", "hf", "-o", "hf"], &["hf/config.json"]);
    let back = made(root, &["hf", "--names", "meta", "-o", "meta"], &["meta/params.json"]);
    let same = made(root, &["hf", "--names", "hf", "-o", "same"], &[]);
    insta::assert_snapshot!([there, back, same].join("\n\n"));
    assert_eq!(tensors(root, "meta"), tensors(root, &llama()));
    assert_eq!(tensors(root, "same"), tensors(root, "hf"));
    let config = |folder| std::fs::read(root.join(folder).join("config.json")).expect("it was written");
    assert_eq!(config("same"), config("hf"));
    // The document that was replaced would contradict the new one.
    assert!(!root.join("hf/params.json").exists() && !root.join("meta/config.json").exists());
    assert!(root.join("hf/tokenizer.model").exists());
    // The other kind of file, under the names that the two codes look for.
    ok(root, &["hf", "--names", "meta", "--to", "safetensors", "-o", "st"]);
    assert_eq!(tensors(root, "st/model.safetensors"), tensors(root, &llama()));
    ok(root, &["hf", "--names", "meta", "-o", "pth"]);
    assert_eq!(tensors(root, "pth/consolidated.00.pth"), tensors(root, &llama()));
    assert!(root.join("pth/params.json").exists() && root.join("pth/tokenizer.model").exists());
    ok(root, &[&llama(), "--names", "hf", "--to", "pth", "-o", "bin"]);
    assert_eq!(tensors(root, "bin"), tensors(root, "hf"));
    assert!(root.join("bin/pytorch_model.bin").exists());
    // config.json states the dtype of what is written.
    ok(root, &[&llama(), "--names", "hf", "--dtype", "float32", "-o", "cast"]);
    let config = std::fs::read_to_string(root.join("cast/config.json")).expect("it was written");
    assert!(config.contains(r#""torch_dtype": "float32""#), "{config}");
}

#[test]
fn a_name_of_a_file_gets_a_file() {
    let scratch = scratch();
    let root = scratch.path();
    ok(root, &[&llama(), "--names", "hf", "-o", "hf"]);
    let mut text = String::new();
    for args in [
        &[&llama(), "--names", "hf", "-o", "x.safetensors"][..],
        &[&llama(), "--names", "hf", "-o", "x.pth"],
        &["hf", "--names", "meta", "-o", "y.pth"],
        &["hf", "--names", "meta", "-o", "y.safetensors"],
        &["hf", "-o", "one.safetensors", "--max-shard-size", "1GB"],
    ] {
        writeln!(text, "$ {}\n{}", args.join(" "), made(root, args, &[])).expect("a String grows");
    }
    let args = ["hf", "-o", "several.safetensors", "--max-shard-size", "500"];
    writeln!(text, "$ {}\n{}", args.join(" "), refused(root, &args)).expect("a String grows");
    insta::assert_snapshot!(text.replace(&llama(), "llama"));
    for file in ["x.safetensors", "x.pth", "y.pth", "y.safetensors", "one.safetensors"] {
        assert!(root.join(file).is_file(), "{file}");
    }
    assert_eq!(tensors(root, "x.safetensors"), tensors(root, "hf"));
    assert_eq!(tensors(root, "y.pth"), tensors(root, &llama()));
    assert!(!root.join("several.safetensors").exists());
    // A folder of that name gets the documents, too.
    std::fs::create_dir(root.join("folder.safetensors")).expect("a new folder");
    ok(root, &[&llama(), "--names", "hf", "-o", "folder.safetensors"]);
    assert!(root.join("folder.safetensors/config.json").is_file());
}

#[test]
fn ids_of_tokens_come_from_the_tokenizer() {
    let scratch = scratch();
    let root = scratch.path();
    std::fs::create_dir(root.join("llama")).expect("a new folder");
    for name in ["consolidated.00.pth", "params.json"] {
        std::fs::copy(Path::new(&llama()).join(name), root.join("llama").join(name)).expect("it can be read");
    }
    let ids = |out: &str| {
        let text = std::fs::read_to_string(root.join(out).join("config.json")).expect("it was written");
        let config: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        format!("{} {}", config["bos_token_id"], config["eos_token_id"])
    };
    write(
        root.join("llama/tokenizer.json"),
        r#"{"added_tokens": [{"id": 1, "content": "<s>"}, {"id": 2, "content": "</s>"}]}"#,
    );
    let text = ok(root, &["llama", "--names", "hf", "-o", "unknown"]);
    assert!(text.contains("`bos_token_id` and `eos_token_id` are null; no document states them\n"), "{text}");
    assert_eq!(ids("unknown"), "null null");
    write(
        root.join("llama/tokenizer_config.json"),
        r#"{"bos_token": "<s>", "eos_token": {"content": "</s>"}}"#,
    );
    let text = ok(root, &["llama", "--names", "hf", "-o", "known"]);
    assert!(!text.contains("token_id"), "{text}");
    assert_eq!(ids("known"), "1 2");
    write(root.join("llama/generation_config.json"), r#"{"eos_token_id": [2, 3]}"#);
    write(root.join("llama/tokenizer_config.json"), "{}");
    let text = ok(root, &["llama", "--names", "hf", "-o", "list"]);
    assert!(text.contains("`bos_token_id` is null; no document states it\n"), "{text}");
    assert_eq!(ids("list"), "null [2,3]");
    write(root.join("llama/generation_config.json"), "<html>");
    let text = refused(root, &["llama", "--names", "hf", "-o", "broken"]);
    assert!(text.contains("llama/generation_config.json"), "{text}");
}

#[test]
fn what_has_no_other_layout_is_refused() {
    let scratch = scratch();
    let root = scratch.path();
    std::fs::create_dir(root.join("qwen2")).expect("a new folder");
    let (matrix, names) =
        ([4_u64, 4], ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"]);
    let names = names.map(|name| format!("model.layers.0.{name}.weight"));
    let mut tensors: Vec<(&str, &[u64])> = names.iter().map(|name| (name.as_str(), &matrix[..])).collect();
    tensors.extend([
        ("model.embed_tokens.weight", &matrix[..]),
        ("model.layers.0.mlp.gate_proj.weight", &matrix),
    ]);
    write_safetensors(&root.join("qwen2/model.safetensors"), &[], &tensors);
    let config = r#"{"model_type": "qwen2", "num_attention_heads": 2, "rms_norm_eps": 1e-6}"#;
    write(root.join("qwen2/config.json"), config);
    write_pth(&root.join("x.pth"), &dict(&[("a", tensor(1))]));
    std::fs::create_dir(root.join("bare")).expect("a new folder");
    let first = Path::new(&llama()).join("consolidated.00.pth");
    std::fs::copy(&first, root.join("bare/consolidated.00.pth")).expect("it can be read");
    let mut text = String::new();
    for args in [
        &["qwen2", "--names", "meta", "-o", "out"][..],
        &["x.pth", "--names", "hf", "-o", "out"],
        &["bare", "--names", "hf", "-o", "out"],
        &["bare", "--names", "hf", "--rope-theta", "10000", "-o", "out"],
        &[&llama(), "--names", "hf", "--n-heads", "4", "-o", "out"],
        &[&llama(), "--names", "hf", "-o", "out.carton"],
        &[&llama(), "--names", "hf", "-o", "out", "--exclude", "norm.weight"],
        &[&llama(), "--names", "hf", "-o", "out", "--rename", "^norm=other"],
    ] {
        let said = refused(root, args);
        writeln!(text, "$ {}\n{said}", args.join(" ")).expect("a String grows");
    }
    let text = text.replace(&llama(), "llama");
    insta::assert_snapshot!(text);
    assert!(!root.join("out").exists() && !root.join("out.carton").exists());
}

#[test]
fn names_are_replaced_in_order() {
    let scratch = scratch();
    let root = scratch.path();
    let items = [("h.0.w", tensor(1)), ("h.1.w", tensor(2)), ("ln", tensor(3))];
    write_pth(&root.join("x.pth"), &dict(&items));
    let [layers, norm] = [r"^h\.(\d+)=layers.$1", "^ln$=norm"];
    ok(root, &["x.pth", "-o", "x.safetensors", "--rename", layers, "--rename", norm]);
    let listed = tensors(root, "x.safetensors");
    let names: Vec<&str> = listed.lines().filter_map(|row| row.split(' ').next()).collect();
    assert_eq!(names, [r#""layers.0.w""#, r#""layers.1.w""#, r#""norm""#]);
    ok(root, &["x.pth", "-o", "x.carton", "--rename", norm]);
    assert!(ok(root, &["inspect", "x.carton"]).contains("norm  "));

    let mut text = String::new();
    for rename in [r"\.\d=", "^ln=", "^model=", "(=", "ln=$1", "ln", "=x"] {
        let said = refused(root, &["x.pth", "-o", "y.safetensors", "--rename", rename]);
        writeln!(text, "$ --rename '{rename}'\n{said}").expect("a String grows");
    }
    insta::assert_snapshot!(text);
    assert!(!root.join("y.safetensors").exists());
}
