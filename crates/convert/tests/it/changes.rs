//! An input that another program changes while it is converted, and a folder of outputs that it removes: an error, and no
//! output.
//!
//! The change is made at a known step of the conversion, so nothing depends on timing.

#![expect(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use byte_source::{FileChange, FileChanged, FileError, Observer, ProgressUpdate, WINDOW};
use convert::{ConvertOptions, ConvertReport, convert};
use test_support::safetensors;

const MIB: usize = WINDOW;

/// Writes a file that was last changed long ago: clocks of filesystems are slower than tests.
fn write_old(path: &Path, bytes: &[u8]) {
    let mut file = File::create(path).expect("a temporary folder");
    file.write_all(bytes).expect("a temporary folder");
    file.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000)).expect("it is ours");
}

/// A safetensors file with tensors of these names, shapes and strides of bytes.
fn write_safetensors(path: &Path, tensors: &[(&str, &[usize])]) {
    let bytes = |shape: &[usize]| {
        (0..shape.iter().product()).map(|at| u8::try_from(at % 251).unwrap_or_default()).collect::<Vec<_>>()
    };
    write_old(path, &safetensors(tensors.iter().map(|(name, shape)| (name, "U8", shape, bytes(shape)))));
}

/// Changes something once `at` bytes are written.
struct ChangeAt<'c> {
    at: u64,
    change: &'c (dyn Fn() + Sync),
    is_done: AtomicBool,
}

impl Observer for ChangeAt<'_> {
    fn progress(&self, step: ProgressUpdate<'_>) {
        if step.done >= self.at && !self.is_done.swap(true, Ordering::Relaxed) {
            (self.change)();
        }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().expect("a folder").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// What a conversion of `input` reports if `change` happens once `at` bytes are written. Nothing may be left.
fn changed(input: &Path, folder: &Path, at: usize, change: &(dyn Fn() + Sync)) -> (PathBuf, FileChange) {
    let before = names(folder);
    let observer = ChangeAt { at: at as u64, change, is_done: AtomicBool::new(false) };
    let error = convert(&ConvertOptions::new(input), &observer).expect_err("its input changed");
    assert!(observer.is_done.into_inner(), "the change was never made");
    assert_eq!(names(folder), before, "something is left");
    let FileChanged { path, change } = error.detail().cloned().unwrap_or_else(|| panic!("{error}"));
    (path, change)
}

fn open(path: &Path) -> File {
    File::options().write(true).open(path).expect("it was written")
}

#[test]
fn an_input_that_is_cut_is_an_error_that_says_where() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("m.safetensors");
    for left in [0, 5 * MIB + 5000, 12 * MIB - 1] {
        write_safetensors(&path, &[("a", &[7 * MIB + 3]), ("b", &[5 * MIB])]);
        let expected = path.metadata().expect("it was written").len();
        for at in [1, 3 * MIB] {
            let cut = || open(&path).set_len(left as u64).expect("it is ours");
            let (file, change) = changed(&path, folder.path(), at, &cut);
            let FileChange::Length { expected: was, found } = change else { panic!("{change}") };
            assert_eq!((file.as_path(), was), (path.as_path(), expected));
            assert_eq!(found, left as u64);
            write_safetensors(&path, &[("a", &[7 * MIB + 3]), ("b", &[5 * MIB])]);
        }
    }
}

#[test]
fn an_input_that_is_written_to_is_an_error() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("m.safetensors");
    let make = || write_safetensors(&path, &[("a", &[7 * MIB + 3]), ("b", &[5 * MIB])]);
    make();
    let total = path.metadata().expect("it was written").len();
    // In a window that waits for its hash, in one that was written, in one that was not yet read, and in no tensor.
    for (at, place) in [(2, 1), (3, 2), (3, 0), (2, 9)].map(|(at, place)| (at * MIB, place * MIB)) {
        let overwrite = || open(&path).write_all_at(&[0xff; 4096], place as u64 + 500).expect("it is ours");
        assert_eq!(changed(&path, folder.path(), at, &overwrite), (path.clone(), FileChange::Written));
        make();
    }
    let append = || {
        let mut file = open(&path);
        file.seek(SeekFrom::End(0)).expect("it is ours");
        file.write_all(b"more").expect("it is ours");
    };
    let longer = FileChange::Length { expected: total, found: total + 4 };
    assert_eq!(changed(&path, folder.path(), MIB, &append), (path.clone(), longer));
}

/// Another file under the name of the input changes nothing: the one that was opened is read to its end.
#[test]
fn an_input_that_is_replaced_is_read_as_it_was() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("m.safetensors");
    write_safetensors(&path, &[("a", &[7 * MIB + 3])]);
    let expected = manifest(&convert(&ConvertOptions::new(&path), &()).expect("it can be converted"));
    let replace = || {
        std::fs::rename(&path, folder.path().join("old")).expect("it is ours");
        write_old(&path, b"something else");
    };
    let observer = ChangeAt { at: MIB as u64, change: &replace, is_done: AtomicBool::new(false) };
    let report = convert(&ConvertOptions::new(&path), &observer).expect("it was open");
    assert_eq!(manifest(&report), expected);
}

#[test]
fn each_file_of_a_set_is_compared() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let set = folder.path().join("set");
    std::fs::create_dir(&set).expect("a temporary folder");
    let shards = [1, 2].map(|number| set.join(format!("model-0000{number}-of-00002.safetensors")));
    for (index, shard) in shards.iter().enumerate() {
        write_safetensors(shard, &[(["a", "b"][index], &[3 * MIB])]);
    }
    // The first one is read to its end when the second one is written.
    for shard in &shards {
        let bytes = std::fs::read(shard).expect("it was written");
        let overwrite = || open(shard).write_all_at(&[0xff; 10], MIB as u64).expect("it is ours");
        assert_eq!(changed(&set, folder.path(), 5 * MIB, &overwrite), (shard.clone(), FileChange::Written));
        write_old(shard, &bytes);
    }
    let cut = || open(&shards[1]).set_len(MIB as u64).expect("it is ours");
    let (file, change) = changed(&set, folder.path(), MIB, &cut);
    assert_eq!(file, shards[1]);
    assert!(matches!(change, FileChange::Length { found, .. } if found == MIB as u64), "{change}");
}

#[test]
fn documents_next_to_the_checkpoint_are_compared() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (path, license) = (folder.path().join("m.safetensors"), folder.path().join("LICENSE"));
    write_safetensors(&path, &[("a", &[3 * MIB])]);
    let text = vec![b'x'; 2 * MIB];
    write_old(&license, &text);
    let overwrite = || open(&license).write_all_at(b"y", 0).expect("it is ours");
    assert_eq!(changed(&path, folder.path(), 3 * MIB, &overwrite), (license.clone(), FileChange::Written));
    write_old(&license, &text);
    let cut = || open(&license).set_len(1).expect("it is ours");
    let (file, change) = changed(&path, folder.path(), 1, &cut);
    assert_eq!(file, license);
    assert!(matches!(change, FileChange::Length { found: 1, .. }), "{change}");
}

#[cfg(unix)]
#[test]
fn a_folder_of_outputs_that_is_removed_is_an_error() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (path, out) = (folder.path().join("m.safetensors"), folder.path().join("out"));
    write_safetensors(&path, &[("a", &[3 * MIB])]);
    for name in ["m.carton", "m.safetensors", "m.pth"] {
        let target = out.join(name);
        std::fs::create_dir(&out).expect("a temporary folder");
        let mut options = ConvertOptions::new(&path);
        options.output = Some(target.clone());
        let remove = || std::fs::remove_dir_all(&out).expect("it is ours");
        let observer = ChangeAt { at: MIB as u64, change: &remove, is_done: AtomicBool::new(false) };
        let error = convert(&options, &observer).expect_err("the folder is gone");
        assert!(observer.is_done.into_inner(), "the folder was never removed");
        let Some(FileError::Write { path, reason }) = error.detail() else { panic!("{error}") };
        assert_eq!((path, reason.kind()), (&target, ErrorKind::NotFound));
        assert_eq!(names(folder.path()), ["m.safetensors"]);
    }
}

fn manifest(report: &ConvertReport) -> Option<String> {
    report.carton()?.manifest_sha256.clone()
}
