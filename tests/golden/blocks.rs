//! Cartons of decoders whose matrices are blocks of eight bits. tests/conformance runs them in PyTorch.

#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::path::Path;

use serde_json::{Value as Json, json};

use crate::carton_tools::{names, ok, refused, run, scratch, write};
use crate::cli::json as report;
use crate::layouts::make;
use crate::made::{dict, tensor, write_pth};

/// Plain matrices, one of them tied; fused ones; the columns first; and experts.
const CONFIGS: [(&str, &str); 4] = [
    (
        "llama",
        r#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "vocab_size": 64,
            "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "max_position_embeddings": 64, "tie_word_embeddings": true}"#,
    ),
    (
        "phi3",
        r#"{"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "hidden_size": 32, "vocab_size": 64,
            "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 64, "original_max_position_embeddings": 64,
            "tie_word_embeddings": false, "pad_token_id": 0}"#,
    ),
    (
        "gpt2",
        r#"{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 32, "vocab_size": 64, "n_layer": 2, "n_head": 2,
            "n_positions": 64, "n_ctx": 64, "n_inner": 64}"#,
    ),
    (
        "mixtral",
        r#"{"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 32, "vocab_size": 64,
            "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 64, "num_local_experts": 3,
            "num_experts_per_tok": 2, "tie_word_embeddings": false}"#,
    ),
];

/// Makes the folder of a model in float32, with a tokenizer.
fn folder(root: &Path, name: &str, config: &str) {
    let bytes = format!("{name}-bytes");
    make(root, &bytes, config, |_| true);
    ok(root, &[&bytes, "--cast", "uint8=float32", "--to", "safetensors", "-o", name, "-q"]);
    let vocab: Vec<String> =
        ('!'..).take(64).zip(0..).map(|(c, id)| format!("{}:{id}", Json::from(c.to_string()))).collect();
    let tokenizer = format!(
        r#"{{"version": "1.0", "added_tokens": [], "pre_tokenizer": {{"type": "ByteLevel", "add_prefix_space": false}},
            "decoder": {{"type": "ByteLevel"}}, "model": {{"type": "BPE", "vocab": {{{}}}, "merges": []}}}}"#,
        vocab.join(",")
    );
    write(root.join(name).join("tokenizer.json"), tokenizer);
}

fn digest(root: &Path, path: &str) -> String {
    ok(root, &["digest", path]).split_whitespace().next().expect("a hash").to_owned()
}

fn tokens(root: &Path, path: &str) -> Json {
    report(root, &["run", "--json", path, "--tokens", "1,2,3", "-n", "8"])["tokens"].clone()
}

#[test]
fn blocks_are_kept_run_and_give_their_numbers() {
    let scratch = scratch();
    let root = scratch.path();
    for (name, config) in CONFIGS {
        folder(root, name, config);
        let made = report(root, &[name, "--dtype", "q8_0", "-o", "x.carton", "--json", "--force"]);
        let cast = made["casts"].as_array().expect("it has casts").last().expect("one of blocks").clone();
        assert_eq!((&cast["from"], &cast["to"]), (&json!("float32"), &json!("q8_0")), "{name}");
        let listed = report(root, &["inspect", "--json", "x.carton"]);
        let rows = listed["tensors"].as_array().expect("a list").iter();
        let blocks = rows.filter(|row| row["blocks"] == "Q8_0").count();
        assert_eq!(cast["tensors"], json!(blocks), "{name}");
        ok(root, &["verify", "x.carton"]);
        ok(root, &["verify", "x.carton", "--against", name, "--dtype", "q8_0"]);
        ok(root, &["scan", "x.carton"]);
        // The numbers, in another carton, a folder and a file.
        ok(root, &["x.carton", "--to", "safetensors", "-o", "numbers", "--force", "-q"]);
        ok(root, &["x.carton", "--dtype", "float32", "-o", "numbers.carton", "--force", "-q"]);
        ok(root, &["x.carton", "-o", "numbers.pth", "--force", "-q"]);
        ok(root, &["x.carton", "-o", "again.carton", "--force", "-q"]);
        for other in ["numbers", "numbers.carton", "numbers.pth", "again.carton"] {
            assert_eq!(digest(root, "x.carton"), digest(root, other), "{name}: {other}");
        }
        let len = |name: &str| std::fs::metadata(root.join(name)).expect("it was written").len();
        assert!(
            len("x.carton") < len("numbers.carton") && len("x.carton").abs_diff(len("again.carton")) < 100
        );
        let expected = tokens(root, "numbers.carton");
        for other in ["x.carton", "numbers", "again.carton"] {
            assert_eq!(tokens(root, other), expected, "{name}: {other}");
        }
        // Phi-3 has another kind of tokenizer in a GGUF file.
        if name == "phi3" {
            continue;
        }
        let gguf = ["--pre-tokenizer", "llama-bpe", "--force", "-q"];
        ok(root, &[&[name, "--dtype", "q8_0", "-o", "a.gguf"], &gguf[..]].concat());
        ok(root, &[&["x.carton", "-o", "b.gguf"], &gguf[..]].concat());
        assert_eq!(digest(root, "a.gguf"), digest(root, "b.gguf"), "{name}");
        ok(root, &["a.gguf", "--dequantize", "--dtype", "q8_0", "-o", "c.carton", "--force", "-q"]);
        for other in ["a.gguf", "b.gguf", "c.carton"] {
            assert_eq!(tokens(root, other), expected, "{name}: {other}");
        }
    }
}

#[test]
fn what_has_no_blocks_is_named() {
    let scratch = scratch();
    let root = scratch.path();
    let (_, llama) = CONFIGS[0];
    folder(root, "narrow", &llama.replace("\"intermediate_size\": 64", "\"intermediate_size\": 48"));
    folder(
        root,
        "none",
        &llama
            .replace("\"hidden_size\": 32", "\"hidden_size\": 24")
            .replace("\"intermediate_size\": 64", "\"intermediate_size\": 48"),
    );
    folder(root, "infinite", llama);
    // A matrix with a number that has no scale.
    let path = root.join("infinite/model.safetensors");
    let mut bytes = std::fs::read(&path).expect("it was written");
    let header =
        usize::try_from(u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))).expect("it is short");
    let listed: Json = serde_json::from_slice(&bytes[8..8 + header]).expect("JSON");
    let start = listed["model.layers.1.mlp.up_proj.weight"]["data_offsets"][0].as_u64().expect("an offset");
    let at = 8 + header + usize::try_from(start).expect("it is short");
    bytes[at..at + 4].copy_from_slice(&9e6_f32.to_le_bytes());
    write(path, bytes);
    write_pth(&root.join("weights.pth"), &dict(&[("w", tensor(1))]));
    let (_, mut texts) = run(root, &["narrow", "--dtype", "q8_0", "-o", "narrow.carton", "--dry-run"]);
    let before = names(root);
    for args in [
        &["none", "-o", "x.carton", "--dtype", "q8_0"][..],
        &["infinite", "-o", "x.carton", "--dtype", "q8_0"],
        &["weights.pth", "-o", "x.carton", "--dtype", "q8_0"],
        &["narrow", "-o", "x.carton", "--arch", "weights", "--dtype", "q8_0"],
        &["narrow", "-o", "x.safetensors", "--dtype", "q8_0"],
        &["narrow", "-o", "x.carton", "--dtype", "q4_0"],
    ] {
        let text = refused(root, args);
        texts = format!("{texts}$ {}\n{text}", args.join(" "));
    }
    insta::assert_snapshot!(texts);
    assert_eq!(names(root), before);
}

#[test]
fn a_self_test_has_the_logits_of_the_blocks() {
    let scratch = scratch();
    let root = scratch.path();
    let (name, config) = CONFIGS[0];
    folder(root, name, config);
    let made = report(root, &[name, "--dtype", "q8_0", "--self-test", "-o", "x.carton", "--json"]);
    assert_eq!(made["self_test"], json!({ "inputs": ["tokens"], "expected_out": ["logits"] }));
    ok(root, &["run", "x.carton", "--self-test"]);
}
