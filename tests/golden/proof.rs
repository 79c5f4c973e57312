//! `--statement` and `verify --statement`: exit statuses and texts. Who reads statements, and what is found, is tested in `convert` and in
//! `tests/conformance`.

use std::path::Path;

use crate::carton_tools::{ok, run, scratch, write};
use crate::cli::json;
use crate::self_tests::llama;

/// The exit status, and what is printed.
fn verified(root: &Path, output: &str) -> (Option<i32>, String) {
    run(root, &["verify", "--statement", "s.json", "--input", "llama", output])
}

#[test]
fn each_kind_of_output_is_made_again() {
    let scratch = scratch();
    let root = scratch.path();
    llama(root);
    for (output, flags) in [
        ("x.carton", &["--self-test", "--dtype", "float32"][..]),
        ("x.safetensors", &["--dtype", "float16"]),
        ("x.pth", &[]),
        ("hf", &["--names", "hf"]),
        ("models", &["--to", "triton"]),
        ("named", &["--to", "triton", "--name", "y"]),
    ] {
        let args = ["llama", "-o", output, "--statement", "s.json", "-q", "--force"];
        ok(root, &[&args[..], flags].concat());
        let (status, text) = verified(root, output);
        assert_eq!(status, Some(0), "{output}: {text}");
    }
}

#[test]
fn what_is_found_is_told() {
    let scratch = scratch();
    let root = scratch.path();
    llama(root);
    let report = json(root, &["llama", "-o", "x.safetensors", "--statement", "s.json", "--json"]);
    assert_eq!(report["statement"], "s.json");
    let mut bytes = std::fs::read(root.join("x.safetensors")).expect("it was written");
    *bytes.last_mut().expect("it has bytes") ^= 1;
    let last = bytes.len().saturating_sub(1);
    write(root.join("x.safetensors"), bytes);
    let (status, text) = verified(root, "x.safetensors");
    assert!(
        status == Some(1) && text.contains(&format!("x.safetensors: differs at byte {last}\n")),
        "{text}"
    );
    std::fs::remove_file(root.join("llama/params.json")).expect("it was written");
    let (status, text) = verified(root, "x.safetensors");
    assert!(status == Some(2) && text.contains("`params.json`; name the folder"), "{text}");
    write(root.join("s.json"), "{}");
    let (status, text) = verified(root, "x.safetensors");
    assert!(status == Some(2) && text.contains("it is not the statement of a conversion: /_type"), "{text}");
}
