//! Copies of the folders in `data`, and what is read from them.

use std::fs;
use std::path::{Path, PathBuf};

use byte_source::{Blob, Location};
use open::trainers::{JoinedCheckpoint, Result, TrainerFolder};
use tempfile::TempDir;

pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

pub(crate) fn join(folder: &Path) -> Result<JoinedCheckpoint> {
    let folder = Location::from(folder).list().expect("a folder");
    let found = TrainerFolder::at(&folder)?.expect("a trainer's folder");
    let sources = found.folder.store().open(&found.files).expect("files that were listed");
    let containers =
        sources.into_iter().map(|source| found.layout.open(source)).collect::<Result<Vec<_>>>()?;
    found.layout.join(&containers, &())
}

/// Returns the error of joining, without the path of the folder.
pub(crate) fn error(folder: &Path) -> String {
    let text = join(folder).expect_err("the folder is damaged").to_string();
    text.replace(&folder.display().to_string(), "FOLDER")
}

/// Copies the folder `name` of `data`, and changes its files.
pub(crate) fn changed(name: &str, change: impl Fn(&Path)) -> (TempDir, PathBuf) {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let folder = temporary.path().to_owned();
    copy(name, &folder);
    change(&folder);
    (temporary, folder)
}

/// Copies the files of the folder `name` of `data`, and those of its sub-folders.
pub(crate) fn copy(name: &str, folder: &Path) {
    for entry in fs::read_dir(data(name)).expect("the data") {
        let path = entry.expect("an entry").path();
        let file = path.file_name().expect("a name").to_str().expect("UTF-8");
        if path.is_dir() {
            fs::create_dir(folder.join(file)).expect("a folder");
            copy(&format!("{name}/{file}"), &folder.join(file));
        } else {
            fs::copy(&path, folder.join(file)).expect("a copy");
        }
    }
}

/// Replaces bytes everywhere in a file by as many others.
pub(crate) fn replace(path: &Path, from: &[u8], to: &[u8]) {
    let mut bytes = fs::read(path).expect("the file");
    assert_eq!(from.len(), to.len());
    let places = bytes.windows(from.len()).enumerate().filter(|(_, it)| *it == from).map(|(at, _)| at);
    let places: Vec<usize> = places.collect();
    assert!(!places.is_empty(), "{from:?} is not in the file");
    for at in places {
        let (_, rest) = bytes.split_at_mut(at);
        rest.split_at_mut(to.len()).0.copy_from_slice(to);
    }
    fs::write(path, bytes).expect("the file");
}

/// Returns the elements of a tensor of 32-bit numbers.
pub(crate) fn floats(joined: &JoinedCheckpoint, name: &str) -> Vec<f32> {
    let mut bytes: Vec<u8> = Vec::new();
    let tensors = joined.checkpoint.to_tensors();
    tensors.get(name).expect("a tensor").gathered().write_to(&mut bytes).expect("bytes");
    bytes.chunks(4).map(|it| f32::from_le_bytes(it.try_into().expect("four bytes"))).collect()
}

/// Returns the numbers from 0 to 34, the elements of the tensors in `data`.
pub(crate) fn counting() -> Vec<f32> {
    (0..35_u16).map(f32::from).collect()
}
