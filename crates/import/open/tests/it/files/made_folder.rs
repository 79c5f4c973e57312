//! Folders with made-up files.

use std::fmt::Debug;
use std::path::PathBuf;

use open::Error;
use open::files::{CheckpointSources, FolderDiagnosis, Problem, ShardPolicy};

/// A safetensors file with one tensor of one byte.
pub(crate) fn one_tensor(name: &str) -> Vec<u8> {
    test_support::safetensors([(name, "U8", [1], [7])])
}

/// A folder with files of these names. Those that end in `.safetensors` hold a tensor that is named after the file, all
/// others the bytes that are given.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn with(files: &[&str]) -> Self {
        let folder = Self(tempfile::tempdir().expect("a temporary folder"));
        for name in files {
            folder.write(name, b"");
        }
        folder
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a temporary folder");
        let tensors = one_tensor(name);
        let bytes = if name.ends_with(".safetensors") { &tensors } else { bytes };
        std::fs::write(path, bytes).expect("a temporary folder");
    }

    /// An index of the two files of a set, which it writes too.
    pub(crate) fn write_set(&self) {
        let files = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
        for name in files {
            self.write(name, b"");
        }
        let map: Vec<String> = files.iter().map(|name| format!(r#""{name}":"{name}""#)).collect();
        let text = format!(r#"{{"weight_map":{{{}}}}}"#, map.join(","));
        self.write("model.safetensors.index.json", text.as_bytes());
    }

    pub(crate) fn find(&self) -> Result<CheckpointSources, Error> {
        CheckpointSources::find(&[self.path()], ShardPolicy::RequireAll)
    }

    pub(crate) fn contents(&self) -> FolderDiagnosis {
        match problem(self.find()) {
            Problem::NoCheckpoint { contents, .. } => contents,
            other => panic!("expected a folder without a checkpoint, found {other:?}"),
        }
    }
}

/// Returns the problem of finding or reading files.
pub(crate) fn problem<T: Debug>(result: Result<T, Error>) -> Problem {
    result.expect_err("a problem").downcast().expect("a problem of files")
}

pub(crate) fn names(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| output::file_name(path)).collect()
}
