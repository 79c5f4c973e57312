//! Self tests that a conversion stores. tests/conformance compares their logits with PyTorch's.

use std::path::Path;

use serde_json::json;

use crate::carton_tools::{names, ok, refused, scratch, write};
use crate::cli::json as report;
use crate::made::{dict, tensor, write_pth};
use crate::program::folder;

/// A copy of the small LLaMA, whose weights are bfloat16.
pub(crate) fn llama(root: &Path) {
    let from = folder().join("checkpoints/llama_tiny");
    for name in ["consolidated.00.pth", "params.json"] {
        write(root.join("llama").join(name), std::fs::read(from.join(name)).expect("it is checked in"));
    }
}

/// The text without the lines about sizes and times, and without hashes.
fn stable(text: &str) -> String {
    let is_stable =
        |line: &&str| !["size ", "manifest "].iter().any(|start| line.trim_start().starts_with(start));
    text.lines().filter(is_stable).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_carton_gets_tokens_and_the_logits_of_f32_weights() {
    let scratch = scratch();
    let root = scratch.path();
    llama(root);
    let text = ok(root, &["llama", "--self-test", "--dtype", "float32", "-o", "x.carton"]);
    ok(root, &["unpack", "x.carton", "-o", "x", "-q"]);
    let read = |name: &str| std::fs::read_to_string(root.join("x").join(name)).expect("it was unpacked");
    let toml = read("carton.toml");
    let (_, tests) = toml.split_once("[[self_test]]").expect("it was asked for");
    insta::assert_snapshot!(format!(
        "{}\n[[self_test]]{tests}\n{}",
        stable(&text),
        read("tensor_data/index.toml")
    ));
    assert_eq!(
        names(&root.join("x/tensor_data")),
        ["index.toml", "self_test_logits.bin", "self_test_tokens.bin"]
    );
    let tokens = std::fs::read(root.join("x/tensor_data/self_test_tokens.bin")).expect("it was unpacked");
    let ids: Vec<i64> =
        tokens.chunks_exact(8).map(|bytes| i64::from_le_bytes(bytes.try_into().expect("eight"))).collect();
    assert_eq!(ids, [0, 0, 1, 2, 2, 3, 4, 5]);
    ok(root, &["verify", "x.carton"]);
    // The same input gives the same bytes, and a dry run knows their number.
    let again = ["llama", "--self-test", "--dtype", "float32", "-o", "y.carton", "--json"];
    let planned = report(root, &[&again[..], &["--dry-run"]].concat());
    let made = report(root, &again);
    assert_eq!(planned["nbytes"], made["nbytes"]);
    assert_eq!(made["self_test"], json!({ "inputs": ["tokens"], "expected_out": ["logits"] }));
    let bytes = |name: &str| std::fs::read(root.join(name)).expect("it was written");
    assert_eq!(bytes("x.carton"), bytes("y.carton"));
    // Fields of a file, and a test in it, are kept as well.
    let fields = "license = \"MIT\"\n[[self_test]]\nname = \"mine\"\ninputs = {}\n";
    write(root.join("fields.toml"), fields);
    ok(root, &["llama", "--self-test", "-o", "z.carton", "--config", "fields.toml", "-q"]);
    let config = report(root, &["inspect", "--json", "z.carton"])["config"].clone();
    assert_eq!(config["license"], "MIT");
    assert_eq!(config["self_test"].as_array().map(Vec::len), Some(2));
}

#[test]
fn weights_of_fewer_digits_have_no_expected_logits() {
    let scratch = scratch();
    let root = scratch.path();
    llama(root);
    let args = ["llama", "--self-test", "-o", "x.carton"];
    insta::assert_snapshot!(stable(&ok(root, &args)));
    let test = &report(root, &["inspect", "--json", "x.carton"])["config"]["self_test"][0];
    assert_eq!(test["inputs"], json!({ "tokens": "@tensor_data/self_test_tokens" }));
    assert!(test.get("expected_out").is_none(), "{test}");
}

#[test]
fn what_cannot_have_a_self_test_is_refused() {
    let scratch = scratch();
    let root = scratch.path();
    llama(root);
    write_pth(&root.join("weights.pth"), &dict(&[("w", tensor(1))]));
    let mut texts = String::new();
    for args in [
        &["weights.pth"][..],
        &["llama", "--arch", "weights"],
        &["llama", "--to", "triton"],
        &["llama", "-o", "x.safetensors"],
    ] {
        let text = refused(root, &[args, &["--self-test"]].concat());
        texts = format!("{texts}$ {}\n{text}", args.join(" "));
    }
    insta::assert_snapshot!(texts);
    assert_eq!(names(root), ["llama", "weights.pth"]);
}
