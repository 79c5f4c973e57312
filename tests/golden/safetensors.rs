//! Checkpoints that become safetensors: one file, or a folder with an index and the model's documents.

use std::path::Path;

use serde_json::{Value as Json, json};

use crate::carton_tools::{ok, run, scratch, write};
use crate::cli::json as report;
use crate::made::{Value, dict, tensor, write_pth, write_safetensors};
use crate::program::folder;

/// The header of a safetensors file.
fn header(path: &Path) -> Json {
    let bytes = std::fs::read(path).expect("it was written");
    let len = u64::from_le_bytes(*bytes.first_chunk().expect("a header"));
    let len = usize::try_from(len).expect("a small header");
    serde_json::from_slice(bytes.get(8..).and_then(|rest| rest.get(..len)).expect("a whole header"))
        .expect("JSON")
}

fn checkpoint(name: &str) -> String {
    folder().join("checkpoints").join(name).display().to_string()
}

/// The lines of a text without the one that has a duration.
fn stable(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with("size ")).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_header_has_the_order_and_the_padding_of_the_official_writer() {
    let scratch = scratch();
    let root = scratch.path();
    let values = [("b", Value::Tensor(vec![2, 3])), ("a", tensor(3)), ("é", Value::Tensor(vec![0, 4]))];
    write_pth(&root.join("x.pth"), &dict(&values));
    ok(root, &["x.pth", "-o", "x.safetensors"]);
    let bytes = std::fs::read(root.join("x.safetensors")).expect("it was written");
    let entries = r#""a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2,3],"data_offsets":[3,9]},"é":{"dtype":"U8","shape":[0,4],"data_offsets":[9,9]}"#;
    let mut text = format!(r#"{{"__metadata__":{{"format":"pt"}},{entries}}}"#).into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let expected = [&(text.len() as u64).to_le_bytes()[..], &text, &[2, 2, 2, 1, 1, 1, 1, 1, 1]].concat();
    assert_eq!(bytes, expected);
    let made = report(root, &["x.pth", "--to", "safetensors", "-o", "y.safetensors", "--json"]);
    assert_eq!((&made["to"], &made["nbytes"]), (&json!("safetensors"), &json!(bytes.len())));
    assert_eq!((&made["files"], &made["ties"]), (&json!(["y.safetensors"]), &json!([])));
    assert!(made.get("module").is_none(), "{made}");
    assert_eq!(std::fs::read(root.join("y.safetensors")).expect("it was written"), bytes);
}

#[test]
fn tied_tensors_are_written_once_and_restored() {
    let scratch = scratch();
    let root = scratch.path();
    let input = checkpoint("tied.pth");
    let text = ok(root, &[&input, "-o", "x.safetensors"]);
    insta::assert_snapshot!(stable(&text));
    let names = |header: &Json| header.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    let written = header(&root.join("x.safetensors"));
    assert_eq!(written["__metadata__"], json!({ "format": "pt", "head.weight": "embed.weight" }));
    assert_eq!(names(&written), ["__metadata__", "again.weight", "embed.weight"]);
    ok(root, &[&input, "-o", "all.safetensors", "--ties", "duplicate"]);
    let written = header(&root.join("all.safetensors"));
    assert_eq!(written["__metadata__"], json!({ "format": "pt" }));
    assert_eq!(names(&written), ["__metadata__", "again.weight", "embed.weight", "head.weight"]);

    let listed = report(root, &["inspect", "--json", "--sha256", "x.safetensors"]);
    let original = report(root, &["inspect", "--json", "--sha256", &input]);
    let hash = |listed: &Json, name: &str| {
        let tensors = listed["tensors"].as_array().expect("a list");
        let tensor = tensors.iter().find(|tensor| tensor["name"] == name).expect("it is listed");
        (tensor["sha256"].clone(), tensor["storage"].clone())
    };
    for name in ["embed.weight", "head.weight", "again.weight"] {
        assert_eq!(hash(&listed, name).0, hash(&original, name).0, "{name}");
    }
    assert_eq!(hash(&listed, "head.weight").1, hash(&listed, "embed.weight").1);
    // A tie is not a value, and metadata that names no tensor is.
    assert_eq!(listed["value_count"], 1);
    write_safetensors(
        &root.join("m.safetensors"),
        &[("format", "w"), ("title", "w"), ("x.w", "w"), ("y", "v")],
        &[("w", &[1])],
    );
    let listed = report(root, &["inspect", "--json", "--all", "m.safetensors"]);
    let names: Vec<_> = listed["tensors"].as_array().expect("a list").iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["w", "x.w"]);
    let paths: Vec<_> = listed["values"].as_array().expect("a list").iter().map(|it| &it["path"]).collect();
    assert_eq!(paths, ["__metadata__.format", "__metadata__.title", "__metadata__.y"]);
}

#[test]
fn shards_have_an_index_and_the_documents_of_the_model() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(
        &root.join("in/pytorch_model.bin"),
        &dict(&[("a", tensor(3)), ("b", tensor(9)), ("c", tensor(3)), ("d", tensor(3))]),
    );
    for name in ["config.json", "generation_config.json", "tokenizer.json", "params.json", "notes.txt"] {
        write(root.join("in").join(name), "{}");
    }
    ok(root, &["in/pytorch_model.bin", "-o", "out", "--max-shard-size", "6B", "-q"]);
    let index = std::fs::read_to_string(root.join("out/model.safetensors.index.json")).expect("an index");
    insta::assert_snapshot!(index);
    let mut files: Vec<String> = std::fs::read_dir(root.join("out"))
        .expect("a folder")
        .map(|entry| entry.expect("it can be listed").file_name().to_string_lossy().into_owned())
        .collect();
    files.sort();
    assert_eq!(
        files,
        [
            "config.json",
            "generation_config.json",
            "model-00001-of-00003.safetensors",
            "model-00002-of-00003.safetensors",
            "model-00003-of-00003.safetensors",
            "model.safetensors.index.json",
            "params.json",
            "tokenizer.json"
        ]
    );
    let listed = report(root, &["out", "--json", "--to", "safetensors", "-o", "one.safetensors"]);
    assert_eq!(listed["tensors"], 4);
    // One file has no index.
    ok(root, &["in/pytorch_model.bin", "--to", "safetensors", "-o", "whole", "-q"]);
    assert!(root.join("whole/model.safetensors").exists() && root.join("whole/config.json").exists());
    assert!(!root.join("whole/model.safetensors.index.json").exists());
    // A tie is in the metadata of its shard, and not in the index.
    let text = ok(root, &[&checkpoint("tied.pth"), "-o", "tied", "--max-shard-size", "24", "-q"]);
    assert_eq!(text, "");
    let listed = report(root, &["inspect", "--json", "tied"]);
    assert_eq!(listed["tensors"].as_array().map(Vec::len), Some(3), "{listed}");
}

#[test]
fn what_safetensors_cannot_hold_is_named() {
    let scratch = scratch();
    let root = scratch.path();
    let mut texts = String::new();
    let input = checkpoint("dtypes.pth");
    let lines: [&[&str]; 9] = [
        &[&input, "-o", "x.safetensors"],
        &[&input, "-o", "x.gguf"],
        &[&input, "-o", "x.onnx"],
        &[&input, "-o", "x.safetensor"],
        &[&input, "-o", "x.safetensors", "--license", "MIT"],
        &[&input, "-o", "x.safetensors", "--require-model"],
        &[&input, "-o", "x.carton", "--ties", "duplicate"],
        &[&input, "-o", "x.carton", "--max-shard-size", "1GB"],
        &[&input, "-o", "x", "--max-shard-size", "0"],
    ];
    for args in lines {
        let shown = args.get(1..).unwrap_or_default().join(" ");
        let text = run(root, args).1.replace(&input, "dtypes.pth");
        texts.extend(["$ ", &shown, "\n", &text]);
    }
    insta::assert_snapshot!(texts);
    assert_eq!(std::fs::read_dir(root).expect("a folder").count(), 0);
}

#[test]
fn names_are_unique() {
    let scratch = scratch();
    let root = scratch.path();
    // A tensor without a name is called `tensor`.
    write_pth(&root.join("x.pth"), &dict(&[("", tensor(3)), ("tensor", tensor(3))]));
    for to in ["carton", "safetensors", "pth"] {
        let (status, text) = run(root, &["x.pth", "--to", to, "-o", "out"]);
        assert!(status == Some(1) && text.contains("two tensors have the name `tensor`"), "{to}: {text}");
    }
}

#[test]
fn a_tensor_of_several_parts_is_left_out_as_a_whole() {
    let scratch = scratch();
    let root = scratch.path();
    let input = folder().join("objects/compounds/jagged.pth").display().to_string();
    let (status, text) = run(root, &[&input, "--exclude", "x", "-o", "x.safetensors"]);
    assert!(status == Some(1) && text.contains("the patterns exclude every tensor"), "{text}");
    ok(root, &[&input, "--include", "x", "-o", "x.carton"]);
}

#[test]
fn each_input_becomes_its_own_file() {
    let scratch = scratch();
    let root = scratch.path();
    for name in ["a", "b"] {
        write_pth(&root.join(name).with_extension("pth"), &dict(&[("w", tensor(3))]));
    }
    let convert = ["a.pth", "b.pth", "--each", "--to", "safetensors", "-o", "out", "--resume"];
    ok(root, &convert);
    assert!(root.join("out/a.safetensors").exists() && root.join("out/b.safetensors").exists());
    std::fs::remove_file(root.join("out/b.safetensors")).expect("it was written");
    let text = ok(root, &convert);
    assert!(text.contains("a.pth is skipped: out/a.safetensors is whole"), "{text}");
    assert!(text.contains("1 converted, 1 skipped, 0 failed"), "{text}");
    // Shards need a folder each.
    let mut sharded = convert.to_vec();
    sharded.extend(["--max-shard-size", "1"]);
    let text = ok(root, &sharded);
    assert!(text.contains("2 converted, 0 skipped, 0 failed"), "{text}");
    assert!(root.join("out/a-safetensors/model.safetensors").exists(), "{text}");
    let text = ok(root, &sharded);
    assert!(text.contains("0 converted, 2 skipped, 0 failed"), "{text}");
}

#[test]
fn files_of_another_model_do_not_stay_in_the_folder() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(&root.join("x.pth"), &dict(&[("a", tensor(3)), ("b", tensor(3))]));
    let whole = ["x.pth", "--to", "safetensors", "-o", "out"];
    let parts = ["x.pth", "--to", "safetensors", "-o", "out", "--max-shard-size", "3"];
    ok(root, &whole);
    // The same names are replaced.
    ok(root, &whole);
    // What an earlier run left in the folder would be read together with the new files.
    ok(root, &parts);
    assert!(!root.join("out/model.safetensors").exists());
    ok(root, &whole);
    assert!(!root.join("out/model.safetensors.index.json").exists());
    write(root.join("out/model-00001-of-00009.safetensors"), "another program's");
    let (status, text) = run(root, &whole);
    assert_eq!(status, Some(1));
    insta::assert_snapshot!(text.lines().next().unwrap_or_default(), @"error: out/model-00001-of-00009.safetensors is not part of this output, and programs might read it instead; remove it, or choose another folder with -o");
}

#[test]
fn a_folder_that_could_not_be_filled_is_not_left() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(&root.join("x.pth"), &dict(&[("a", tensor(3))]));
    let report = report(root, &["x.pth", "--to", "safetensors", "-o", "out", "--dry-run", "--json"]);
    assert_eq!((&report["written"], &report["files"]), (&json!(false), &json!(["model.safetensors"])));
    assert!(!root.join("out").exists());
    write(root.join("file"), "x");
    let (status, text) = run(root, &["x.pth", "--to", "safetensors", "-o", "file"]);
    assert_eq!((status, text.contains("file is not a folder")), (Some(2), true), "{text}");
    ok(root, &["x.pth", "--to", "safetensors", "-o", "out", "-q"]);
    let (status, text) = run(root, &["x.pth", "--to", "safetensors", "-o", "out", "--no-clobber"]);
    assert_eq!((status, text.contains("out/model.safetensors exists")), (Some(1), true), "{text}");
}

#[test]
fn values_are_kept_next_to_the_tensors() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(
        &root.join("a.pth"),
        &dict(&[
            ("weight", dict(&[("w", tensor(1))])),
            ("sr", Value::Int(40)),
            ("config", Value::Tuple(vec![Value::Int(7)])),
        ]),
    );
    let convert = |args: &[&str]| run(root, &[&["a.pth", "--keep-values", "-o"], args].concat());
    let values = |path: &str| -> Vec<(String, i64)> {
        let text = std::fs::read_to_string(root.join(path)).expect("it was written");
        let document: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        let rows = document["values"].as_array().expect("a list");
        let row = |row: &serde_json::Value| {
            (row["path"].as_str().expect("a text").to_owned(), row["value"].as_i64().expect("a number"))
        };
        rows.iter().map(row).collect()
    };
    let expected = [("sr".to_owned(), 40), ("config.0".to_owned(), 7)];
    let (status, text) = convert(&["x.safetensors"]);
    assert!(status == Some(0) && !text.contains("left out"), "{text}");
    assert!(text.contains("files     x.safetensors, x.checkpoint.json\n"), "{text}");
    assert_eq!(values("x.checkpoint.json"), expected);
    assert_eq!(convert(&["x.safetensors"]).0, Some(0), "the program's own files are replaced");
    let (status, text) = convert(&["x.safetensors", "--no-clobber"]);
    assert!(status == Some(1) && text.contains("exists"), "{text}");
    assert_eq!(convert(&["folder", "--to", "safetensors"]).0, Some(0));
    assert_eq!(values("folder/checkpoint.json"), expected);
    // A file of someone else stays, and nothing is written.
    write(root.join("y.checkpoint.json"), "{}");
    let (status, text) = convert(&["y.safetensors"]);
    assert!(status == Some(1) && text.contains("y.checkpoint.json"), "{text}");
    assert!(!root.join("y.safetensors").exists());
    // Without values there is no file.
    write_pth(&root.join("b.pth"), &dict(&[("w", tensor(1))]));
    ok(root, &["b.pth", "--keep-values", "-o", "b.safetensors"]);
    assert!(!root.join("b.checkpoint.json").exists());
}

#[test]
fn the_metadata_of_a_safetensors_file_is_kept() {
    let scratch = scratch();
    let root = scratch.path();
    let own = [
        ("b.weight", "a.weight"),
        ("license", "mit"),
        ("modelspec.hash_sha256", "0xab"),
        ("ss_network_dim", "4"),
        ("title", "a.weight"),
    ];
    write_safetensors(&root.join("x.safetensors"), &own, &[("a.weight", &[2])]);
    let metadata = |file: &str| header(&root.join(file))["__metadata__"].clone();
    let text = ok(root, &["x.safetensors", "-o", "y.safetensors"]);
    assert!(!text.contains("note: "), "{text}");
    let mut expected = serde_json::Map::from_iter([("format".to_owned(), json!("pt"))]);
    expected.extend(own.map(|(key, text)| (key.to_owned(), json!(text))));
    assert_eq!(metadata("y.safetensors"), Json::Object(expected.clone()));
    let text = ok(root, &["x.safetensors", "--cast", "uint8=int16", "-o", "z.safetensors"]);
    let note = "note: modelspec.hash_sha256 is left out of the metadata: it is not true of what is written";
    assert!(text.contains(note) && text.matches("note: ").count() == 1, "{text}");
    expected.remove("modelspec.hash_sha256");
    assert_eq!(metadata("z.safetensors"), Json::Object(expected));
    let text = ok(root, &["inspect", "x.safetensors"]);
    assert!(text.contains("shared with a.weight, a name from the metadata"), "{text}");
    let text = ok(root, &["x.safetensors", "-o", "x.pth"]);
    assert!(text.contains("note: left out 4 values that are not tensors"), "{text}");
}

#[test]
fn what_the_library_safetensors_refuses_is_named() {
    let scratch = scratch();
    let root = scratch.path();
    let json = r#"{"__metadata__":{"epoch":3},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"f[0]":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[1,4]}}"#;
    let len = u64::try_from(json.len()).expect("a small header").to_le_bytes();
    write(root.join("x.safetensors"), [&len[..], json.as_bytes(), &[1, 2, 3, 4]].concat());
    let text = ok(root, &["inspect", "x.safetensors"]);
    assert!(
        text.contains("in `__metadata__`, `epoch` is a number; the library safetensors refuses"),
        "{text}"
    );
    assert!(text.contains("`f[0]`: its dtype `F6_E2M3` means floats of 6 bits, which PyTorch"), "{text}");
    let (status, text) = run(root, &["x.safetensors", "-o", "y.safetensors"]);
    assert!(status == Some(1) && text.contains("; leave it out with --exclude 'f\\[0\\]'"), "{text}");
    let text = ok(root, &["x.safetensors", "-o", "y.safetensors", "--exclude", "f*"]);
    assert!(!text.contains("no name matches"), "{text}");
    assert_eq!(header(&root.join("y.safetensors"))["__metadata__"], json!({ "epoch": "3", "format": "pt" }));
}
