//! Cartons as inputs: `convert`, `diff`, `digest` and `verify --against` treat them like checkpoints.

use std::path::Path;

use crate::carton_tools::{names, ok, refused, run, scratch};
use crate::cli::json;
use crate::triton::llama;

/// Returns the digest of an input.
fn digest(root: &Path, args: &[&str]) -> String {
    let text = ok(root, &[&["digest", "-q"], args].concat());
    text.split_whitespace().next().unwrap_or_default().to_owned()
}

#[test]
fn a_carton_becomes_every_output() {
    let scratch = scratch();
    let root = scratch.path();
    llama(root);
    ok(root, &["llama", "-q", "-o", "x.carton"]);
    ok(root, &["unpack", "x.carton", "-o", "unpacked", "-q"]);
    ok(root, &["pack", "unpacked", "--compression", "zstd", "-o", "packed.carton", "-q"]);
    let expected = digest(root, &["llama"]);
    let original = std::fs::read(root.join("x.carton")).expect("it was written");
    for input in ["x.carton", "unpacked", "packed.carton"] {
        ok(root, &[input, "-q", "-o", "y.safetensors", "--force"]);
        ok(root, &[input, "-q", "-o", "y.pth", "--force"]);
        ok(root, &[input, "-q", "-o", "y.carton", "--name", "llama", "--force"]);
        for output in ["y.safetensors", "y.pth", "y.carton"] {
            assert_eq!(digest(root, &[output]), expected, "{input} as {output}");
        }
        // The module and the documents are those that the checkpoint gives.
        assert!(std::fs::read(root.join("y.carton")).expect("it was written") == original, "{input}");
        ok(root, &[input, "-q", "--to", "safetensors", "-o", "folder", "--force"]);
        assert_eq!(names(&root.join("folder")), ["model.safetensors", "params.json"], "{input}");
    }
    assert_eq!(run(root, &["verify", "-q", "y.safetensors", "--against", "x.carton"]).0, Some(0));
    let (_, text) = run(root, &["x.carton", "-o", "z.pth"]);
    assert!(text.contains("params.json"), "{text}");
    let text = refused(root, &["x.carton"]);
    assert!(text.contains("x.carton"), "{text}");
}

#[test]
fn options_for_tensors_are_about_those_of_a_carton() {
    let scratch = scratch();
    let root = scratch.path();
    llama(root);
    ok(root, &["llama", "-q", "-o", "x.carton"]);
    std::fs::copy(root.join("llama/consolidated.00.pth"), root.join("tuned.pth"))
        .expect("a temporary folder");
    let options: [&[&str]; 5] = [
        &["--dtype", "float64"],
        &["--include", "layers.0.*"],
        &["--rename", "^layers=blocks"],
        &["--names", "hf"],
        &["--add", "tuned.pth=0.5"],
    ];
    for more in options {
        ok(root, &[&["llama", "-q", "-o", "a.safetensors", "--force"], more].concat());
        ok(root, &[&["x.carton", "-q", "-o", "b.safetensors", "--force"], more].concat());
        let read = |name: &str| std::fs::read(root.join(name)).expect("it was written");
        assert!(read("a.safetensors") == read("b.safetensors"), "{more:?}");
    }
    let part = ["--include", "layers.0.*"];
    assert_eq!(
        digest(root, &[&["x.carton"], &part[..]].concat()),
        digest(root, &[&["llama"], &part[..]].concat())
    );
    // What cannot apply is refused.
    let text = refused(root, &["x.carton", "-o", "y.carton", "--input", "x=float32[2]"]);
    assert!(text.contains("--input"), "{text}");
    let text = refused(root, &["x.carton", "-o", "y.safetensors", "--key", "state_dict"]);
    assert!(text.contains("state_dict"), "{text}");
    let text = refused(root, &["x.carton", "-o", "y.safetensors", "--dequantize"]);
    assert!(text.contains("quantized"), "{text}");
}

#[test]
fn quantized_weights_of_a_carton_are_computed() {
    let scratch = scratch();
    let root = scratch.path();
    let folder = crate::dequantize::model("gptq_4_v1");
    let folder = folder.to_str().expect("UTF-8");
    ok(root, &[folder, "-q", "-o", "x.carton"]);
    ok(root, &[folder, "-q", "--dequantize", "-o", "a.safetensors"]);
    ok(root, &["x.carton", "-q", "--dequantize", "-o", "b.safetensors"]);
    let read = |name: &str| std::fs::read(root.join(name)).expect("it was written");
    assert!(read("a.safetensors") == read("b.safetensors"), "the outputs differ");
    let numbers = digest(root, &["a.safetensors"]);
    assert_eq!(digest(root, &["--dequantize", "x.carton"]), numbers);
    assert_eq!(run(root, &["diff", "-q", "--dequantize", "x.carton", "a.safetensors"]).0, Some(0));
}

#[test]
fn values_and_code_of_a_carton_are_kept_in_a_carton() {
    let scratch = scratch();
    let root = scratch.path();
    let folder = crate::program::folder();
    let input = folder.join("objects/values.pth");
    ok(root, &[input.to_str().expect("UTF-8"), "-q", "-o", "x.carton"]);
    ok(root, &["x.carton", "-q", "-o", "y.carton"]);
    assert_eq!(ok(root, &["diff", "-q", "x.carton", "y.carton"]), "");
    let script = folder.join("scripts/float16.pt");
    ok(root, &[script.to_str().expect("UTF-8"), "-q", "-o", "s.carton"]);
    ok(root, &["s.carton", "-q", "-o", "t.carton"]);
    let module = |name: &str| json(root, &["inspect", "--json", name])["config"]["inputs"].clone();
    assert_eq!(module("s.carton"), module("t.carton"));
    let (_, text) = run(root, &["s.carton", "-o", "t.safetensors"]);
    assert!(text.contains("code"), "{text}");
}
