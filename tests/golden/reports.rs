//! Reports: `--json` for programs, and tables for people. Both say the same.

#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::path::Path;

use serde_json::Value as Json;

use crate::carton_tools::{ok, run, scratch};
use crate::cli::{json, one_tensor, output};
use crate::made::{Value, dict, tensor, write_pth, write_safetensors};
use crate::program::folder;

fn members(object: &Json) -> Vec<&str> {
    object.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn what_convert_reports_to_programs() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(
        &root.join("sub/a.pth"),
        &dict(&[
            ("state_dict", dict(&[("w", Value::Tensor(vec![2, 3])), ("b", tensor(3))])),
            ("epoch", Value::Int(7)),
        ]),
    );
    let (status, stdout, stderr) = output(root, &["./sub/../sub/a.pth", "--json", "-o", "x.carton"]);
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "only the object is printed");
    assert_eq!(stdout.lines().count(), 1, "{stdout}");
    let report: Json = serde_json::from_str(&stdout).expect("JSON");
    insta::assert_snapshot!(members(&report).join(" "), @"schema_version file output to written nbytes manifest_sha256 module why_weights inputs outputs misc has_tokenizer tensors parameters bytes_by_dtype left_out left_out_count notes seconds");
    assert_eq!(report["file"], "./sub/../sub/a.pth");
    assert_eq!(report["output"], "x.carton");
    assert_eq!(report["written"], true);
    assert_eq!(report["nbytes"], root.join("x.carton").metadata().expect("it was written").len());
    assert_eq!(
        (&report["module"], &report["tensors"], &report["parameters"]),
        (&"weights".into(), &2.into(), &9.into())
    );
    assert_eq!(report["misc"], serde_json::json!(["checkpoint.json"]));
    assert_eq!(
        report["outputs"][0],
        serde_json::json!({"name": "w", "dtype": "uint8", "shape": [2, 3], "optional": false})
    );
    assert_eq!(report["notes"].as_array().map(Vec::len), Some(2), "{report}");
    let manifest = crate::carton_tools::manifest(&root.join("x.carton"));
    let manifest = byte_source::hex(&byte_source::Sha256::of(&manifest));
    assert_eq!(report["manifest_sha256"], manifest);
    // What is in the carton under the same hash.
    assert_eq!(json(root, &["inspect", "--json", "x.carton"])["manifest_sha256"], manifest);
    assert_eq!(json(root, &["verify", "--json", "x.carton"])["manifest_sha256"], manifest);
}

#[test]
fn a_model_that_runs_is_reported_to_programs() {
    let scratch = scratch();
    let input = folder().join("checkpoints/llama_tiny").display().to_string();
    let report = json(scratch.path(), &[&input, "--json", "-o", "x.carton"]);
    assert_eq!((&report["file"], &report["module"]), (&input.into(), &"llama".into()));
    assert!(report.get("why_weights").is_none(), "{report}");
    let names: Vec<_> =
        report["inputs"].as_array().expect("a list").iter().map(|port| &port["name"]).collect();
    assert_eq!(names, ["tokens", "last_only", "use_cache", "past_key", "past_value"]);
    assert_eq!(report["inputs"][0]["shape"], serde_json::json!(["batch", "seq"]));
    assert_eq!(
        (&report["inputs"][0]["optional"], &report["inputs"][1]["optional"]),
        (&false.into(), &true.into())
    );
    assert_eq!(report["has_tokenizer"], true);
}

#[test]
fn every_object_names_the_file_as_it_was_typed() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(&root.join("d/a.pth"), &dict(&[("w", tensor(1))]));
    write_pth(&root.join("d/b.pth"), &dict(&[("w", tensor(1))]));
    ok(root, &["d/a.pth", "-q"]);
    let here = root.join("d/a.pth").display().to_string();
    let carton = root.join("d/a.carton").display().to_string();
    for args in [
        &["convert", "--json", "./d/../d/a.pth"][..],
        &["convert", "--json", "--dry-run", &here],
        &["inspect", "--json", "./d/../d/a.pth"],
        &["inspect", "--json", &here],
        &["inspect", "--json", "./d/../d/a.carton"],
        &["scan", "--json", "./d/../d/a.pth"],
        &["scan", "--json", "d/missing.pth"],
        &["verify", "--json", "./d/../d/a.carton"],
        &["verify", "--json", &carton],
    ] {
        let file = args.last().expect("the file");
        let (_, stdout, _) = output(root, args);
        assert_eq!(stdout.lines().count(), 1, "{args:?}: {stdout}");
        assert!(!stdout.contains(": ") && !stdout.contains(", "), "{args:?}: not compact: {stdout}");
        let object: Json = serde_json::from_str(&stdout).expect("JSON");
        assert_eq!((&object["file"], &object["schema_version"]), (&(*file).into(), &1.into()), "{args:?}");
    }
    // Several files: one line for each.
    for command in [&["inspect", "--json"][..], &["scan", "--json"], &["convert", "--json", "--each"]] {
        let (_, stdout, _) = output(root, &[command, &["d/a.pth", "d/b.pth"]].concat());
        let files: Vec<Json> = stdout
            .lines()
            .map(|line| serde_json::from_str::<Json>(line).expect("JSON")["file"].clone())
            .collect();
        assert_eq!(files, ["d/a.pth", "d/b.pth"], "{command:?}");
    }
}

#[test]
fn a_damaged_carton_is_an_object_too() {
    let scratch = scratch();
    let root = scratch.path();
    one_tensor(root);
    ok(root, &["a.pth", "-q"]);
    let carton = root.join("a.carton");
    let mut bytes = std::fs::read(&carton).expect("it was written");
    let at = bytes.windows(8).position(|bytes| bytes == b"model/mo").expect("a name");
    bytes[at + 6] = b'n';
    std::fs::write(&carton, bytes).expect("it can be written");
    let report = json(root, &["verify", "--json", "a.carton"]);
    assert_eq!((&report["file"], &report["ok"]), (&"a.carton".into(), &false.into()));
    assert!(!report["findings"].as_array().expect("a list").is_empty());
    assert_eq!(run(root, &["verify", "--json", "a.carton"]).0, Some(1));
}

#[test]
fn a_dry_run_reports_the_size_and_writes_nothing() {
    let scratch = scratch();
    let root = scratch.path();
    one_tensor(root);
    let text = ok(root, &["a.pth", "--dry-run"]);
    assert!(text.contains("a.carton\n") && text.contains("name  dtype"), "{text}");
    assert!(text.contains("nothing was written (--dry-run)"), "{text}");
    assert!(!text.contains("manifest"), "{text}");
    let planned = json(root, &["a.pth", "--dry-run", "--json"]);
    let left: Vec<_> = root.read_dir().expect("a folder").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["a.pth"]);
    let done = json(root, &["a.pth", "--json"]);
    assert_eq!((&planned["written"], &done["written"]), (&false.into(), &true.into()));
    assert_eq!((&planned["nbytes"], &planned["manifest_sha256"]), (&done["nbytes"], &Json::Null));
    // It refuses what a conversion would refuse.
    assert_eq!(run(root, &["a.pth", "--dry-run", "--no-clobber"]).0, Some(1));
    assert_eq!(run(root, &["a.pth", "--dry-run", "-o", "a.pth/a.carton"]).0, Some(1));
    ok(root, &["a.pth", "--dry-run", "-o", "missing/a.carton"]);
    assert!(!root.join("missing").exists());
}

/// Long enough that a width of 16 bits would overflow.
const LONG: usize = 65_536;

/// That no line of a table is wide, and that `--json` has `name` and `shape` whole.
fn is_cut(root: &Path, file: &str, name: &str, shape: &[u64]) {
    let shape_text = format!("{shape:?}");
    for args in [&["inspect", file][..], &["inspect", "-q", file], &["inspect", "--sha256", file]] {
        if args.contains(&"--sha256") && Path::new(file).extension().is_some_and(|it| it == "carton") {
            continue;
        }
        let text = ok(root, args);
        for long in [name, shape_text.as_str()].into_iter().filter(|cell| cell.len() >= LONG) {
            let length = long.chars().count();
            assert!(text.contains(&format!("… ({length} characters)")), "{args:?}");
        }
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest < Some(500), "{args:?}: {widest:?} characters");
    }
    let object = json(root, &["inspect", "--json", file]);
    let tensor = &object["tensors"][0];
    assert!(tensor["name"] == name, "the name is whole");
    assert!(tensor["shape"] == serde_json::json!(shape), "the shape is whole");
}

#[test]
fn long_names_and_shapes_are_cut_in_tables() {
    let scratch = scratch();
    let root = scratch.path();
    let name = "x".repeat(LONG);
    let shape = vec![1; LONG / 3 + 1];
    for (kind, name, shape) in [("name", name.as_str(), &[1_u64][..]), ("shape", "w", &shape)] {
        let pth = format!("{kind}.pth");
        write_pth(&root.join(&pth), &dict(&[(name, Value::Tensor(shape.to_vec()))]));
        let safetensors = format!("{kind}.safetensors");
        write_safetensors(&root.join(&safetensors), &[], &[(name, shape)]);
        for file in [pth, safetensors] {
            is_cut(root, &file, name, shape);
            let (status, text) = run(root, &[&file, "--arch", "weights"]);
            assert!(matches!(status, Some(0 | 1)), "{text}");
            assert!(text.lines().all(|line| line.chars().count() < 2 * LONG), "a name is repeated");
        }
    }
    // A tensor shares its storage with one that has a long name.
    let (status, text) = run(root, &["scan", "name.pth", "shape.pth"]);
    assert_eq!(status, Some(0), "{text}");
}

#[test]
fn a_carton_of_weights_lists_each_tensor_once() {
    let scratch = scratch();
    let root = scratch.path();
    let ema = dict(&[("w", tensor(2)), ("b", tensor(1))]);
    write_pth(&root.join("a.pth"), &dict(&[("model", ema.clone()), ("ema", ema), ("epoch", Value::Int(1))]));
    ok(root, &["a.pth", "--key", "ema", "-q"]);
    let report = json(root, &["inspect", "--json", "a.carton"]);
    let names: Vec<_> =
        report["tensors"].as_array().expect("a list").iter().map(|tensor| &tensor["name"]).collect();
    assert_eq!(names, ["w", "b"]);
    let text = ok(root, &["inspect", "a.carton"]);
    assert!(!text.contains("__tensors__"), "{text}");
    let verify = |more: &[&str]| run(root, &[&["verify", "a.carton", "--against", "a.pth"], more].concat());
    let (status, text) = verify(&["--key", "ema"]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("2 tensors equal bit for bit"), "{text}");
    // With other options than those of the conversion, what differs is listed once, under its own name.
    assert_eq!(
        verify(&["--key", "ema", "--include", "b"]).1,
        "tensor `w` is not in the checkpoint\nerror: a.carton: 1 problem found\nexit status 1\n"
    );
    let other = "tensor `w` differs from the checkpoint in its elements\ntensor `b` differs from the checkpoint in its elements\n\
                 error: a.carton: 2 problems found\nexit status 1\n";
    assert_eq!(verify(&["--key", "model"]).1, other);
    assert_eq!(
        verify(&["--key", "ema", "--strip-prefix", "w"]).1,
        "tensor `tensor` is missing\ntensor `w` is not in the checkpoint\nerror: a.carton: 2 problems found\nexit status 1\n"
    );
    assert_eq!(verify(&["--key", "nothing"]).0, Some(1));
}
