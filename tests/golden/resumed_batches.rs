//! Batches that go on where an earlier one ended: `--resume`.

#![expect(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]

use serde_json::Value as Json;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::batches::checkpoints;
use crate::carton_tools::{names, ok, run, scratch};
use crate::made::{dict, tensor, write_pth};

/// Sets the time at which a file was last changed to `seconds` before now.
fn age(path: &Path, seconds: u64) {
    let time = SystemTime::now() - Duration::from_secs(seconds);
    let file = std::fs::File::options().write(true).open(path).expect("it is there");
    file.set_modified(time).expect("it can be set");
}

fn modified(path: &Path) -> SystemTime {
    path.metadata().and_then(|metadata| metadata.modified()).expect("it is there")
}

#[test]
fn whole_cartons_are_skipped() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    let each =
        |more: &[&str]| run(root, &[&["--each", "--resume", "-o", "out", "a.pth", "b.pth"], more].concat());
    assert!(each(&[]).1.ends_with("\n2 converted, 0 skipped, 0 failed\n"));
    let (first, second) = (root.join("out/a.carton"), root.join("out/b.carton"));
    let before = (modified(&first), modified(&second));
    let (status, text) = each(&[]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("note: a.pth is skipped: out/a.carton is whole\n"), "{text}");
    assert!(text.ends_with("0 converted, 2 skipped, 0 failed\n"), "{text}");
    assert_eq!(before, (modified(&first), modified(&second)));
    // Without --resume they are converted again.
    let text = ok(root, &["--each", "-o", "out", "a.pth", "b.pth"]);
    assert!(text.ends_with("\n2 converted, 0 failed\n"), "{text}");
    // A failure remains one.
    let (status, text) = each(&["broken.pth"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.ends_with("\n0 converted, 2 skipped, 1 failed\nexit status 1\n"), "{text}");
}

/// Runs a batch of `a.pth` and `b.pth` with `--resume` and the given options.
fn resume(root: &Path, options: &[&str]) -> (Option<i32>, String) {
    run(root, &[&["--each", "--resume", "-o", "out", "a.pth", "b.pth"], options].concat())
}

/// Checks that a batch with `--resume` converts `a.pth` again and skips `b.pth`.
fn assert_redone(root: &Path, options: &[&str], what: &str) {
    let (status, text) = resume(root, options);
    assert_eq!(status, Some(0), "{what}: {text}");
    assert!(text.ends_with("\n1 converted, 1 skipped, 0 failed\n"), "{what}: {text}");
    ok(root, &["verify", "out/a.carton", "--against", "a.pth", "-q"]);
}

fn assert_skipped(root: &Path, options: &[&str], what: &str) {
    let (status, text) = resume(root, options);
    assert_eq!(status, Some(0), "{what}: {text}");
    assert!(text.ends_with("0 converted, 2 skipped, 0 failed\n"), "{what}: {text}");
}

const FOREIGN: &str = "cannot replace out/a.carton: it was not written by torch2carton, or was changed or copied since; --force";

#[test]
fn missing_and_torn_cartons_are_made_again() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    let carton = root.join("out/a.carton");
    resume(root, &[]);
    std::fs::remove_file(&carton).expect("it was written");
    assert_redone(root, &[], "missing");
    let whole = std::fs::read(&carton).expect("it was written");
    for len in [0, 1, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&carton, &whole[..len]).expect("it can be written");
        // Another program's file, for all that is known.
        let (status, text) = resume(root, &[]);
        assert_eq!(status, Some(1), "{text}");
        assert!(text.contains(FOREIGN), "{text}");
        assert_redone(root, &["--force"], &format!("cut to {len} bytes"));
    }
    std::fs::write(&carton, "not a carton").expect("it can be written");
    assert_redone(root, &["--force"], "not a carton");
    // A carton that leaves files out is not whole.
    let shrink = ["shrink", "out/a.carton", "-o", "s.carton", "--base", "https://a.b", "--blobs", "blobs"];
    ok(root, &[&shrink[..], &["--min-size", "1", "-q"]].concat());
    std::fs::rename(root.join("s.carton"), &carton).expect("a temporary folder");
    assert_redone(root, &[], "shrunk");
}

#[test]
fn a_carton_that_verify_rejects_is_never_whole() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    let carton = root.join("out/a.carton");
    resume(root, &[]);
    let whole = std::fs::read(&carton).expect("it was written");
    let written = modified(&carton);
    // Every part of the file: an entry's data, the directory, and the comment at the end.
    for at in (0..whole.len()).step_by(whole.len() / 12) {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        for sets_time_back in [false, true] {
            std::fs::write(&carton, &changed).expect("it can be written");
            if sets_time_back {
                let file = std::fs::File::options().write(true).open(&carton).expect("it is there");
                file.set_modified(written).expect("it can be set");
            }
            let (_, text) = resume(root, &[]);
            assert!(!text.contains("a.pth is skipped"), "byte {at}: {text}");
            // A program that sets the time back can pass its file off as ours.
            assert!(sets_time_back || text.contains(FOREIGN), "byte {at}: {text}");
            assert_redone_if_needed(root, &carton, &whole);
            std::fs::File::options()
                .write(true)
                .open(&carton)
                .and_then(|file| file.set_modified(written))
                .expect("it can be set");
        }
    }
}

/// Makes the carton again with `--force` if it does not have the expected bytes.
fn assert_redone_if_needed(root: &Path, carton: &Path, expected: &[u8]) {
    if std::fs::read(carton).expect("it is there") != expected {
        assert_redone(root, &["--force"], "changed");
    }
    assert_eq!(std::fs::read(carton).expect("it is there"), expected);
}

/// A safetensors file with the tensor `w`, whose four bytes have this value.
fn one_safetensor(value: u8) -> Vec<u8> {
    test_support::safetensors([("w", "U8", [4], [value; 4])])
}

#[test]
fn an_output_of_another_input_is_made_again() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    // The same name, length and times as another input, whose tensors have other values.
    let (first, second) = (root.join("a.pth"), root.join("other/a.pth"));
    std::fs::create_dir(root.join("other")).expect("a temporary folder");
    for (value, path) in [(1, "a.pth"), (2, "other/a.pth")] {
        std::fs::write(root.join("x.safetensors"), one_safetensor(value)).expect("a temporary folder");
        ok(root, &["x.safetensors", "-o", path, "--force", "-q"]);
    }
    assert_eq!(first.metadata().expect("there").len(), second.metadata().expect("there").len());
    for path in [&first, &second] {
        age(path, 3600);
    }
    resume(root, &[]);
    let text = ok(root, &["--each", "--resume", "-o", "out", "other/a.pth", "b.pth"]);
    assert!(text.ends_with("\n1 converted, 1 skipped, 0 failed\n"), "{text}");
    ok(root, &["verify", "out/a.carton", "--against", "other/a.pth", "-q"]);
    assert_redone(root, &[], "the first input again");
    // A copy of the input, and another time, change nothing.
    std::fs::copy(&first, root.join("copy")).expect("a temporary folder");
    std::fs::rename(root.join("copy"), &first).expect("a temporary folder");
    assert_skipped(root, &[], "copied");
    age(&first, 0);
    assert_skipped(root, &[], "touched");
}

#[test]
fn safetensors_with_other_values_are_made_again() {
    let scratch = scratch();
    let root = scratch.path();
    let path = root.join("a.safetensors");
    let each = || ok(root, &["--each", "--resume", "-o", "out", "a.safetensors"]);
    std::fs::write(&path, one_safetensor(1)).expect("a temporary folder");
    assert!(each().ends_with("\n1 converted, 0 skipped, 0 failed\n"));
    assert!(each().ends_with("0 converted, 1 skipped, 0 failed\n"));
    let time = modified(&path);
    std::fs::write(&path, one_safetensor(2)).expect("a temporary folder");
    std::fs::File::options()
        .write(true)
        .open(&path)
        .and_then(|file| file.set_modified(time))
        .expect("it is there");
    assert!(each().ends_with("\n1 converted, 0 skipped, 0 failed\n"));
    ok(root, &["verify", "out/a.carton", "--against", "a.safetensors", "-q"]);
}

#[test]
fn other_options_and_documents_make_an_output_again() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    std::fs::write(root.join("notes.txt"), "one").expect("a temporary folder");
    std::fs::write(root.join("fields.toml"), "license = \"MIT\"\n").expect("a temporary folder");
    let both = |options: &[&str], what: &str| {
        let (status, text) = resume(root, options);
        assert_eq!(status, Some(0), "{what}: {text}");
        assert!(text.ends_with("\n2 converted, 0 skipped, 0 failed\n"), "{what}: {text}");
        assert_skipped(root, options, what);
    };
    resume(root, &[]);
    both(&["--license", "MIT"], "an option");
    both(&["--rename", "w=v"], "a name");
    both(&["--misc", "notes.txt"], "a file");
    std::fs::write(root.join("notes.txt"), "two").expect("a temporary folder");
    both(&["--misc", "notes.txt"], "the text of a file");
    both(&["--config", "fields.toml"], "a file of fields");
    std::fs::write(root.join("fields.toml"), "license = \"ISC\"\n").expect("a temporary folder");
    both(&["--config", "fields.toml"], "the text of a file of fields");
    std::fs::write(root.join("config.json"), "{}").expect("a temporary folder");
    both(&[], "a document next to the inputs");
    std::fs::write(root.join("LICENSE"), "one").expect("a temporary folder");
    both(&[], "another document");
    std::fs::write(root.join("LICENSE"), "two").expect("a temporary folder");
    both(&[], "the text of a document");
    assert_skipped(root, &["--force"], "what is done with files that exist is not an option of the output");
}

#[test]
fn a_changed_shard_makes_its_folder_again() {
    let scratch = scratch();
    let root = scratch.path();
    let shard = |number: u64| root.join(format!("set/model-0000{number}-of-00002.pth"));
    let write = |number: u64, value: u64| {
        write_pth(&shard(number), &dict(&[(format!("w{number}").as_str(), tensor(value))]));
    };
    write(1, 1);
    write(2, 2);
    let each = || ok(root, &["--each", "--resume", "-o", "out", "set"]);
    assert!(each().ends_with("\n1 converted, 0 skipped, 0 failed\n"));
    assert!(each().ends_with("0 converted, 1 skipped, 0 failed\n"));
    write(2, 3);
    assert!(each().ends_with("\n1 converted, 0 skipped, 0 failed\n"), "a shard has other values");
}

#[test]
fn copied_outputs_are_read_and_then_skipped() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    let convert = |options: &[&str]| {
        ok(root, &[&["--each", "-o", "out", "a.pth", "b.pth", "--to", "safetensors"], options].concat())
    };
    convert(&["-q"]);
    std::fs::create_dir(root.join("copy")).expect("a temporary folder");
    for name in names(&root.join("out")) {
        std::fs::copy(root.join("out").join(&name), root.join("copy").join(&name))
            .expect("a temporary folder");
    }
    std::fs::remove_dir_all(root.join("out")).expect("it is ours");
    std::fs::rename(root.join("copy"), root.join("out")).expect("a temporary folder");
    assert!(convert(&["--resume"]).ends_with("0 converted, 2 skipped, 0 failed\n"));
    // A time before that of the input was not set by a conversion.
    age(&root.join("out/a.safetensors"), 3600);
    let text = convert(&["--resume", "--force"]);
    assert!(text.ends_with("\n1 converted, 1 skipped, 0 failed\n"), "{text}");
    // The format has no hashes, but the record has the checksum of the whole file.
    let path = root.join("out/a.safetensors");
    let mut changed = std::fs::read(&path).expect("it was written");
    *changed.last_mut().expect("it has bytes") ^= 1;
    std::fs::write(&path, changed).expect("it can be written");
    let text = convert(&["--resume", "--force"]);
    assert!(text.ends_with("\n1 converted, 1 skipped, 0 failed\n"), "{text}");
}

#[test]
fn every_byte_is_read_with_checksum() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    resume(root, &[]);
    assert_skipped(root, &["--checksum"], "untouched");
    let carton = root.join("out/a.carton");
    let mut changed = std::fs::read(&carton).expect("it was written");
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    std::fs::write(&carton, changed).expect("it can be written");
    let (status, text) = resume(root, &["--checksum"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains(FOREIGN), "{text}");
    assert_redone(root, &["--checksum", "--force"], "a byte");
    let (status, text) = run(root, &["--each", "--checksum", "-o", "out", "a.pth"]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("--resume"), "{text}");
}

#[test]
fn without_a_record_outputs_are_made_again() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    resume(root, &[]);
    let records = root.join("out/.torch2carton.outputs");
    let lines = std::fs::read_to_string(&records).expect("the batch wrote it");
    assert_eq!(lines.lines().count(), 2, "{lines}");
    let line: Json = serde_json::from_str(lines.lines().min().expect("two lines")).expect("JSON");
    assert_eq!(
        (&line["output"], &line["files"][0]["path"]),
        (&Json::from("a.carton"), &Json::from("a.carton"))
    );
    std::fs::write(&records, lines.lines().nth(1).expect("two lines")).expect("it can be written");
    assert_redone(root, &[], "one line is missing");
    std::fs::remove_file(&records).expect("it is there");
    assert!(resume(root, &[]).1.ends_with("\n2 converted, 0 skipped, 0 failed\n"));
    // Equal inputs give equal bytes; the records are about the folder, not in the outputs.
    ok(root, &["a.pth", "-o", "alone.carton", "-q"]);
    let bytes = |path: &str| std::fs::read(root.join(path)).expect("it was written");
    assert_eq!(bytes("alone.carton"), bytes("out/a.carton"));
}
