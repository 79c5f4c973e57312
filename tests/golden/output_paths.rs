//! Where outputs go: `-o` for files and folders, defaults, and folders that do not exist yet.

use std::path::Path;

use crate::carton_tools::{ok, run, scratch, write};
use crate::made::{dict, tensor, write_pth, write_safetensors};

/// A model with a configuration and a tokenizer in the folder `m`, and a single file `a.pth`.
fn model_and_file(root: &Path) {
    write_safetensors(&root.join("m/model.safetensors"), &[("format", "pt")], &[("w", &[2])]);
    write(root.join("m/config.json"), "{\"model_type\": \"t5\"}");
    write(root.join("m/tokenizer.json"), "{}");
    write_pth(&root.join("a.pth"), &dict(&[("w", tensor(3))]));
}

/// The names of the files in a folder, sorted.
fn listing(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().expect("a folder").flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_folder_becomes_a_folder_with_its_documents() {
    let scratch = scratch();
    let root = scratch.path();
    model_and_file(root);
    for (args, folder, weights) in [
        (&["m", "--to", "safetensors"][..], "m-safetensors", "model.safetensors"),
        (&["m", "--to", "safetensors", "-o", "out/deep"], "out/deep", "model.safetensors"),
        (&["m", "--to", "pth"], "m-pth", "pytorch_model.bin"),
        (&["m", "--to", "pth", "-o", "shards4"], "shards4", "pytorch_model.bin"),
    ] {
        ok(root, &[args, &["-q"]].concat());
        assert_eq!(listing(&root.join(folder)), ["config.json", weights, "tokenizer.json"], "{args:?}");
    }
    // A file is a file, and a note says what it lacks.
    let text = ok(root, &["m", "-o", "x.safetensors"]);
    assert!(
        text.contains(
            "note: config.json, tokenizer.json are not written with a single file; --to safetensors -o FOLDER"
        ),
        "{text}"
    );
    assert!(root.join("x.safetensors").is_file());
    let text = ok(root, &["a.pth", "--to", "safetensors"]);
    assert!(root.join("a.safetensors").is_file() && !text.contains("note"), "{text}");
}

#[test]
fn a_note_says_which_documents_a_folder_lacks() {
    let scratch = scratch();
    let root = scratch.path();
    write_safetensors(&root.join("bare/model.safetensors"), &[("format", "pt")], &[("w", &[2])]);
    let text = ok(root, &["bare", "--to", "safetensors", "-o", "out1"]);
    assert!(
        text.contains("note: there is no config.json next to the checkpoint, so the output has none;"),
        "{text}"
    );
    write(root.join("bare/config.json"), r#"{"model_type": "vit"}"#);
    let text = ok(root, &["bare", "--to", "safetensors", "-o", "out2"]);
    assert!(!text.contains("note"), "a model of images has no tokenizer: {text}");
    write(root.join("bare/config.json"), r#"{"model_type": "t5", "vocab_size": 8}"#);
    let text = ok(root, &["bare", "--to", "pth", "-o", "out3"]);
    assert!(
        text.contains("note: there is no tokenizer next to the checkpoint, so the output has none;"),
        "{text}"
    );
    write(root.join("bare/tokenizer.json"), "{}");
    let text = ok(root, &["bare", "--to", "safetensors", "-o", "out4"]);
    assert!(!text.contains("note"), "{text}");
}

#[test]
fn folders_of_outputs_are_created_and_used() {
    let scratch = scratch();
    let root = scratch.path();
    model_and_file(root);
    ok(root, &["a.pth", "-q", "-o", "new/deep/x.carton"]);
    ok(root, &["a.pth", "-q", "-o", "new/other/x.safetensors"]);
    ok(root, &["run", "new/deep/x.carton", "--get", "w", "-o", "arrays/w.npy"]);
    ok(root, &["unpack", "new/deep/x.carton", "-q", "-o", "parts/x"]);
    ok(root, &["pack", "parts/x", "-q", "-o", "packed/again/x.carton"]);
    assert!(root.join("packed/again/x.carton").is_file() && root.join("arrays/w.npy").is_file());
    // A folder that exists gets safetensors, or the file that is asked for.
    ok(root, &["a.pth", "-q", "-o", "new"]);
    assert!(root.join("new/model.safetensors").is_file());
    ok(root, &["a.pth", "-q", "-o", "new", "--to", "carton"]);
    assert!(root.join("new/a.carton").is_file());
    // Nothing is left of a conversion that fails.
    let (status, text) = run(root, &["a.pth", "-q", "-o", "failed/deep/x.safetensors", "--exclude", "*"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(!root.join("failed").exists());
    let (status, text) = run(root, &["a.pth", "-o", "a.pth/x.carton"]);
    assert!(status == Some(1) && text.contains("a.pth is not a folder"), "{text}");
}

#[test]
fn a_name_says_what_is_written_or_to_does() {
    let scratch = scratch();
    let root = scratch.path();
    model_and_file(root);
    let folder = ["config.json", "model.safetensors", "tokenizer.json"];
    ok(root, &["m", "-q", "-o", "with/slash/"]);
    assert_eq!(listing(&root.join("with/slash")), folder);
    // Also if it ends like a file.
    ok(root, &["m", "-q", "-o", "with.pth/"]);
    assert_eq!(listing(&root.join("with.pth")), folder);
    for (to, file) in [("pth", "pytorch_model.bin"), ("carton", "m.carton")] {
        let output = format!("of-{to}/");
        ok(root, &["m", "-q", "-o", &output, "--to", to]);
        assert!(root.join(output).join(file).is_file(), "{to}");
    }
    // An option says it, too.
    ok(root, &["m", "-q", "-o", "described/", "--description", "a model"]);
    assert!(root.join("described/m.carton").is_file());
    ok(root, &["m", "-q", "-o", "x.carton"]);
    let (status, text) = run(root, &["m", "-o", "out"]);
    assert_eq!(status, Some(2), "{text}");
    insta::assert_snapshot!(text, @"
    error: out does not say what it becomes, and the input is the folder of a model; --to safetensors -o out writes a folder of them, and --to carton one file
    exit status 2
    ");
    assert!(!root.join("out").exists());
    // One file becomes one file.
    ok(root, &["a.pth", "-q", "-o", "one"]);
    assert!(root.join("one").is_file());
}

#[cfg(target_os = "linux")]
#[test]
fn the_default_output_of_another_input_is_kept() {
    let scratch = scratch();
    let root = scratch.path();
    for name in ["a.pth", "a.pt"] {
        write_pth(&root.join(name), &dict(&[("w", tensor(3))]));
    }
    ok(root, &["a.pth"]);
    ok(root, &["a.pth"]);
    let (status, text) = run(root, &["a.pt"]);
    assert_eq!(status, Some(1), "{text}");
    let wanted = "cannot replace a.carton: it was made from a.pth; -o chooses another path, --force replaces it anyway";
    assert!(text.contains(wanted), "{text}");
    ok(root, &["a.pt", "-o", "a.carton"]);
    ok(root, &["a.pt"]);
}
