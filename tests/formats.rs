//! Formats that another crate adds: the examples are the code of these tests.

#[expect(dead_code, reason = "its `main` is not called")]
#[path = "../examples/npz_output.rs"]
mod npz_output;

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use test_support::safetensors;
use torch2carton::{ConvertOptions, cli, convert, outputs, register_output};
use zip::ZipArchive;

const ELEMENTS: [u8; 8] = [0, 0, 128, 63, 0, 0, 0, 64];

/// Writes a checkpoint with one tensor.
fn checkpoint(folder: &Path) -> PathBuf {
    let path = folder.join("w.safetensors");
    std::fs::write(&path, safetensors([("w", "F32", [2], ELEMENTS)])).expect("a temporary folder");
    path
}

/// Returns the elements of an array in an `.npz` file.
fn elements(path: &Path, name: &str) -> Vec<u8> {
    let mut archive = ZipArchive::new(File::open(path).expect("it was written")).expect("an archive");
    let mut array = Vec::new();
    archive.by_name(name).expect("an array").read_to_end(&mut array).expect("an array");
    array.last_chunk::<8>().expect("elements").to_vec()
}

#[test]
fn an_output_of_another_crate_is_chosen_by_its_extension() {
    register_output(&npz_output::NPZ);
    assert!(!register_output(&npz_output::NPZ), "the name is taken");
    assert_eq!(outputs().filter(|format| format.name() == "npz").count(), 1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = folder.path().join("w.npz");
    let report = convert(checkpoint(folder.path())).output(&output).run(&()).expect("it can be converted");
    assert_eq!((report.to, report.tensors), ("npz", 1));
    assert_eq!(elements(&output, "w.npy"), ELEMENTS);
}

#[test]
fn an_option_of_another_crates_output_is_a_flag_and_json() {
    register_output(&npz_output::NPZ);
    let given = serde_json::json!({ "array_prefix": "a/" });
    let options = ConvertOptions::from_json(given.as_object().cloned().expect("an object"));
    let options = options.expect("an option of an output");
    assert_eq!(options.target.format().name(), "npz", "no other output has it");
    let json = serde_json::to_value(&options).expect("options are JSON");
    assert_eq!((&json["to"], &json["array_prefix"]), (&"npz".into(), &"a/".into()));

    let folder = tempfile::tempdir().expect("a temporary folder");
    let (input, output) = (checkpoint(folder.path()), folder.path().join("w"));
    let mut line: Vec<_> =
        ["torch2carton", "-q", "--to", "npz", "--array-prefix", "a/"].map(Into::into).into();
    line.extend([input.into(), "-o".into(), output.clone().into_os_string()]);
    cli::run(line);
    assert_eq!(elements(&output, "a/w.npy"), ELEMENTS);
}
