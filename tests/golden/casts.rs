//! `--cast` and `--dtype`: what is printed about them. Their numbers are compared with PyTorch's in `tests/conformance`.

use std::path::Path;

use crate::carton_tools::{ok, run, scratch, write};
use crate::cli::json;

/// A safetensors file of float32 tensors.
pub(crate) fn floats(path: &Path, tensors: &[(&str, &[f32])]) {
    let bytes = |numbers: &[f32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
    let tensors = tensors.iter().map(|(name, numbers)| (name, "F32", [numbers.len()], bytes(numbers)));
    write(path.to_owned(), test_support::safetensors(tensors));
}

/// What is printed, without the time.
fn printed(text: &str) -> String {
    let line = |line: &str| line.split(" in 0.").next().unwrap_or_default().to_owned();
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_is_cast_is_in_the_summary() {
    let scratch = scratch();
    let root = scratch.path();
    floats(&root.join("in.safetensors"), &[("a", &[1.0, 2.0]), ("b", &[1e6, -1e6, f32::INFINITY])]);
    let text = ok(root, &["in.safetensors", "--dtype", "bf16", "-o", "out.safetensors"]);
    insta::assert_snapshot!(printed(&text), @"
    out.safetensors
      tensors   2, 5 parameters
      cast      2 tensors from float32 to bfloat16
      size      162 B
    ");
    let text = ok(root, &["in.safetensors", "--cast", "float32=float16", "-o", "half.safetensors"]);
    insta::assert_snapshot!(printed(&text), @"
    note: 2 values are out of the range of float16 and became infinite, first in `b`
    half.safetensors
      tensors   2, 5 parameters
      cast      2 tensors from float32 to float16
      size      162 B
    ");
    let text = ok(root, &["in.safetensors", "--dtype", "float8_e4m3fn", "-o", "small.safetensors"]);
    let note =
        "note: 3 values are out of the range of float8_e4m3fn and became the largest one, first in `b`\n";
    assert!(text.contains(note), "{text}");
    let text = ok(root, &["in.safetensors", "--dtype", "float8_e8m0fnu", "-o", "small.safetensors"]);
    let note = "note: 1 value is out of the range of float8_e8m0fnu and became NaN, first in `b`\n";
    assert!(text.contains(note), "{text}");
}

#[test]
fn what_is_cast_is_reported_to_programs() {
    let scratch = scratch();
    let root = scratch.path();
    floats(&root.join("in.safetensors"), &[("a", &[1.0]), ("b", &[1e6])]);
    let cast = ["--json", "in.safetensors", "-o", "out.safetensors", "--cast", "f32=half"];
    let rows = |args: &[&str]| json(root, args)["casts"].to_string();
    assert_eq!(
        rows(&cast),
        r#"[{"from":"float32","to":"float16","tensors":2,"out_of_range":1,"first_out_of_range":"b"}]"#
    );
    assert_eq!(
        rows(&[&cast[..], &["--dry-run"]].concat()),
        r#"[{"from":"float32","to":"float16","tensors":2,"out_of_range":null,"first_out_of_range":null}]"#
    );
    assert_eq!(rows(&cast[..4]), "null");
}

#[test]
fn a_cast_that_changes_nothing_is_noted() {
    let scratch = scratch();
    let root = scratch.path();
    floats(&root.join("in.safetensors"), &[("a", &[1.0])]);
    let args = ["in.safetensors", "-o", "out.safetensors", "--cast", "float64=float32"];
    let text = ok(root, &[&args[..], &["--cast", "f32=f32", "--dtype", "bfloat16"]].concat());
    assert!(text.starts_with("note: nothing to cast: no tensor is float64\nout.safetensors\n"), "{text}");
    assert!(!text.contains("  cast "), "{text}");
    let plain = std::fs::read(root.join("out.safetensors")).expect("it was written");
    ok(root, &["in.safetensors", "-o", "out.safetensors"]);
    assert_eq!(plain, std::fs::read(root.join("out.safetensors")).expect("it was written"));
}

#[test]
fn a_float_without_an_integer_names_its_tensor() {
    let scratch = scratch();
    let root = scratch.path();
    floats(&root.join("in.safetensors"), &[("a", &[1.9]), ("b", &[1.0, f32::NAN])]);
    for output in ["out.safetensors", "out.carton", "out.pth"] {
        let (status, text) = run(root, &["in.safetensors", "--cast", "float32=int8", "-o", output]);
        let error =
            "error: tensor `b`: NaN (float32) is not in the range of int8; leave it out with --exclude b\n";
        assert_eq!(status, Some(1), "{output}");
        assert!(text.starts_with(error), "{output}: {text}");
        assert!(!root.join(output).exists());
        ok(root, &["in.safetensors", "--cast", "float32=int8", "--exclude", "b", "-o", output]);
    }
}

#[test]
fn what_cannot_be_cast_is_a_usage_error() {
    let scratch = scratch();
    let root = scratch.path();
    floats(&root.join("in.safetensors"), &[("a", &[1.0])]);
    for (args, error) in [
        (&["--cast", "complex64=float32"][..], "--cast: complex64 cannot be cast to float32\n"),
        (&["--cast", "qint8=float32"], "--cast: qint8 cannot be cast to float32\n"),
        (
            &["--dtype", "int8"],
            "--dtype: int8 is not a floating-point dtype that tensors can be cast to, such as float32, bfloat16, float16 or float8_e4m3fn\n",
        ),
        (&["--cast", "f32=f16", "--cast", "f32=bf16"], "--cast: float32 is given twice\n"),
        (&["--cast", "flaot32=f16"], "--cast flaot32=f16: `flaot32` is not a dtype; did you mean float32? `"),
        (&["--cast", "float32"], "--cast float32: expected two dtypes, such as float32=bfloat16; `"),
        (
            &["--dtype", "wide"],
            "--dtype wide: `wide` is not a dtype: PyTorch's names are float32, bfloat16, \
             float16, int64 and so on; `",
        ),
    ] {
        let (status, text) = run(root, &[&["in.safetensors", "-o", "out.safetensors"], args].concat());
        assert_eq!(status, Some(2), "{text}");
        assert!(text.starts_with(&format!("error: {error}")), "{text}");
    }
}
