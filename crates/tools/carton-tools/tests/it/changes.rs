//! A carton or a folder that another program changes while it is read: an error, and no output.
//!
//! The change is made at a known step of the work, so nothing depends on timing.

#![cfg(unix)]
#![expect(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use byte_source::{Action, FileChange, FileChanged, ProgressUpdate};
use carton_tools::{
    Error, Observer, PackCompression, PackOptions, ResolveOptions, ShrinkOptions, UnpackOptions, pack,
    resolve, shrink, unpack,
};
use convert::{ConvertOptions, convert};

const MIB: usize = 1 << 20;

/// Filesystems have slower clocks than tests: what is to be changed was last changed long ago.
fn make_old(path: &Path) {
    let file = open(path);
    file.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000)).expect("it is ours");
}

fn open(path: &Path) -> File {
    File::options().write(true).open(path).expect("it was written")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().expect("a folder").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Changes something at the first step of a kind with at least `at` bytes done.
struct ChangeAt<'c> {
    action: Action,
    at: usize,
    change: &'c (dyn Fn() + Sync),
    is_done: AtomicBool,
}

impl Observer for ChangeAt<'_> {
    fn progress(&self, step: ProgressUpdate<'_>) {
        let is_due = step.action == self.action && step.done >= self.at as u64;
        if is_due && !self.is_done.swap(true, Ordering::Relaxed) {
            (self.change)();
        }
    }
}

/// What `work` reports if `change` happens once `at` bytes are done.
fn changed<T>(
    action: Action,
    at: usize,
    change: &(dyn Fn() + Sync),
    work: impl FnOnce(&dyn Observer) -> Result<T, Error>,
) -> (PathBuf, FileChange) {
    let observer = ChangeAt { action, at, change, is_done: AtomicBool::new(false) };
    let done = work(&observer).map(|_| ());
    assert!(observer.is_done.into_inner(), "the change was never made: {done:?}");
    match done {
        Err(error) => {
            let FileChanged { path, change } = error.downcast().expect("its input changed");
            (path, change)
        }
        other => panic!("{other:?}"),
    }
}

/// A carton with a tensor of 6 MiB.
fn carton(folder: &Path) -> PathBuf {
    let (checkpoint, carton) = (folder.join("m.safetensors"), folder.join("m.carton"));
    let len = 6 * MIB;
    let data: Vec<u8> = (0..len).map(|at| u8::try_from(at % 251).unwrap_or_default()).collect();
    std::fs::write(&checkpoint, test_support::safetensors([("a", "U8", [len], data)]))
        .expect("a temporary folder");
    convert(&ConvertOptions::new(&checkpoint), &()).expect("it can be converted");
    std::fs::remove_file(checkpoint).expect("it was written");
    make_old(&carton);
    carton
}

#[test]
fn a_carton_that_changes_is_an_error() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = folder.path();
    let path = carton(root);
    let (bytes, out) = (std::fs::read(&path).expect("it was written"), root.join("out.carton"));
    let total = bytes.len() as u64;
    let restore = || {
        std::fs::write(&path, &bytes).expect("a temporary folder");
        make_old(&path);
    };
    let unpacked = |observer: &dyn Observer| unpack(&into(&path, root), observer);
    let resolved = |observer: &dyn Observer| resolve(&ResolveOptions::new(&path, &out), observer);
    let shrunk = |observer: &dyn Observer| {
        let mut options = ShrinkOptions::new(&path, &out, "https://a.b/", root.join("blobs"));
        options.min_size = 1 << 30;
        shrink(&options, observer)
    };
    for (change, expected) in [
        (
            &(|| open(&path).set_len(3 * MIB as u64).expect("it is ours")) as &(dyn Fn() + Sync),
            FileChange::Length { expected: total, found: 3 * MIB as u64 },
        ),
        // The modification time of the last byte of the directory, which nothing reads again.
        (&|| open(&path).write_all_at(&[0], total - 1).expect("it is ours"), FileChange::Written),
    ] {
        let found = changed(Action::Write, MIB, change, unpacked);
        assert_eq!(found, (path.clone(), expected), "unpack");
        restore();
        assert_eq!(changed(Action::Write, MIB, change, resolved), (path.clone(), expected), "resolve");
        restore();
        assert_eq!(changed(Action::Write, MIB, change, shrunk), (path.clone(), expected), "shrink");
        restore();
        assert_eq!(names(root).iter().filter(|name| *name != "blobs").count(), 1, "{:?}", names(root));
    }
}

/// Unpacks `carton` into the folder `m` of `root`.
fn into(carton: &Path, root: &Path) -> UnpackOptions {
    let mut options = UnpackOptions::new(carton);
    options.output = Some(root.join("m"));
    options
}

#[test]
fn a_folder_whose_files_change_is_not_packed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = folder.path();
    unpack(&into(&carton(root), root), &()).expect("it was just written");
    let large = root.join("m/misc/large.bin");
    let make = || {
        std::fs::create_dir_all(root.join("m/misc")).expect("a temporary folder");
        std::fs::write(&large, vec![7; 5 * MIB]).expect("a temporary folder");
        make_old(&large);
    };
    let before = {
        make();
        names(root)
    };
    let cut = || open(&large).set_len(MIB as u64).expect("it is ours");
    let overwrite = || open(&large).write_all_at(b"x", 0).expect("it is ours");
    let length = FileChange::Length { expected: 5 * MIB as u64, found: MIB as u64 };
    for (compression, action) in [
        (PackCompression::Stored, Action::Write),
        (PackCompression::Zstd, Action::Compress),
        (PackCompression::Deflate, Action::Compress),
        (PackCompression::Auto, Action::Compress),
    ] {
        let mut options = PackOptions::new(root.join("m"));
        options.compression = compression;
        options.output = Some(root.join("p.carton"));
        for (change, expected) in [(&cut as &(dyn Fn() + Sync), length), (&overwrite, FileChange::Written)] {
            let found = changed(action, 2 * MIB, change, |observer| pack(&options, observer));
            assert_eq!(found, (large.clone(), expected), "{compression:?}");
            assert_eq!(names(root), before, "{compression:?}");
            make();
        }
    }
}
