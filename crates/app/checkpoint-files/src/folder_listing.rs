//! Names of files and folders in a folder, and their classification.
//!
//! Facts: the names that Hugging Face's `transformers` and `accelerate`, Lightning and `DeepSpeed` give their files.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::SourceFolder;
use output::parent_folder;

/// Suffix of the file name of an index.
pub(crate) const INDEX_SUFFIX: &str = ".index.json";

/// File name suffixes of checkpoints.
const EXTENSIONS: &[&str] = &[
    ".safetensors",
    ".bin",
    ".pth",
    ".pt",
    ".ckpt",
    ".th",
    ".torch",
    ".pkl",
    ".pickle",
    ".pth.tar",
    ".pt.tar",
];
/// Documents next to a checkpoint that describe the model.
const DOCUMENTS: &[&str] = &["config.json", "params.json"];
/// File name prefixes of training state next to a checkpoint.
const TRAINING_STARTS: &[&str] = &["optimizer.", "scheduler.", "sampler.", "rng_state", "random_states"];
const TRAINING_NAMES: &[&str] = &["scaler.pt", "training_args.bin"];
const TRAINING_ENDS: &[&str] = &["_states.pt"];

/// UTF-8 names of the entries of a folder; other names match none of the known patterns.
#[derive(Debug)]
pub(crate) struct FolderListing {
    pub(crate) folder: PathBuf,
    /// Names of regular files, sorted.
    pub(crate) files: Vec<String>,
    /// Names of sub-folders, sorted.
    pub(crate) folders: Vec<String>,
    /// Names of dangling links, sorted.
    pub(crate) dangling_links: Vec<String>,
    /// The folder, if it is not on this machine.
    pub(crate) remote: Option<Arc<dyn SourceFolder>>,
}

impl FolderListing {
    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        let (mut files, mut folders, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        for entry in folder.read_dir()? {
            let path = entry?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if path.is_file() {
                files.push(name.to_owned());
            } else if path.is_dir() {
                folders.push(name.to_owned());
            } else if path.is_symlink() {
                lost.push(name.to_owned());
            }
        }
        files.sort();
        folders.sort();
        lost.sort();
        Ok(Self { folder: folder.to_owned(), files, folders, dangling_links: lost, remote: None })
    }

    pub(crate) fn of_remote(folder: &Arc<dyn SourceFolder>, below: &Path) -> Self {
        let (mut files, mut folders) = (Vec::new(), BTreeSet::new());
        for file in folder.files() {
            let Ok(rest) = Path::new(file).strip_prefix(below) else { continue };
            let mut parts = rest.iter().filter_map(|part| part.to_str());
            match (parts.next(), parts.next()) {
                (Some(name), None) => files.push(name.to_owned()),
                (Some(name), Some(_)) => drop(folders.insert(name.to_owned())),
                (None, _) => {}
            }
        }
        Self {
            folder: if below == Path::new("") { folder.path().to_owned() } else { folder.path().join(below) },
            files,
            folders: folders.into_iter().collect(),
            dangling_links: Vec::new(),
            remote: Some(Arc::clone(folder)),
        }
    }

    pub(crate) fn below(&self, folder: &Path) -> io::Result<Self> {
        match &self.remote {
            Some(remote) => Ok(Self::of_remote(remote, folder)),
            None => Self::read(&self.folder.join(folder)),
        }
    }

    pub(crate) fn contains_file(&self, name: &str) -> bool {
        self.files.iter().any(|file| file == name)
    }

    /// Returns the files with names of checkpoints.
    pub(crate) fn checkpoints(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str).filter(|name| is_checkpoint(name))
    }

    /// Returns the first dangling link with the name of a checkpoint, an index or a model document. Ignoring it could select
    /// another model.
    pub(crate) fn dangling_checkpoint_link(&self) -> Option<PathBuf> {
        let counts = |name: &&String| {
            is_checkpoint(name)
                || name.strip_suffix(INDEX_SUFFIX).is_some_and(is_checkpoint)
                || DOCUMENTS.contains(&name.as_str())
        };
        self.dangling_links.iter().find(counts).map(|name| self.folder.join(name))
    }

    /// Returns the index files, which list the tensors of a set.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = &str> {
        let is_index = |name: &&str| name.strip_suffix(INDEX_SUFFIX).is_some_and(is_checkpoint);
        self.files.iter().map(String::as_str).filter(is_index)
    }
}

/// Returns the path of the folder that contains `folder`, also for a path that ends with dots instead of a name.
pub(crate) fn folder_above(folder: &Path) -> PathBuf {
    match folder.file_name() {
        Some(_) => parent_folder(folder).to_owned(),
        None if folder == Path::new(".") => PathBuf::from(".."),
        None => folder.join(".."),
    }
}

fn is_checkpoint(name: &str) -> bool {
    !name.starts_with('.')
        && EXTENSIONS.iter().any(|extension| name.ends_with(extension))
        && !is_training_state(name)
}

/// Returns true if the file name is that of training state.
pub(crate) fn is_training_state(name: &str) -> bool {
    TRAINING_NAMES.contains(&name)
        || TRAINING_STARTS.iter().any(|start| name.starts_with(start))
        || TRAINING_ENDS.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_ends_with_dots_has_a_folder_above() {
        for (folder, above) in [("a/b", "a"), ("a", "."), (".", ".."), ("..", "../.."), ("a/..", "a/../..")] {
            assert_eq!(folder_above(Path::new(folder)), Path::new(above), "{folder}");
        }
    }

    #[test]
    fn the_state_of_a_training_is_not_a_checkpoint() {
        for name in [
            "optimizer.pt",
            "optimizer.bin",
            "scheduler.pt",
            "scaler.pt",
            "rng_state_0.pth",
            "random_states_0.pkl",
            "sampler.bin",
        ] {
            assert!(!is_checkpoint(name), "{name}");
        }
        assert!(!is_checkpoint("mp_rank_00_model_states.pt"));
        assert!(!is_checkpoint("training_args.bin"));
        assert!(is_checkpoint("net.pth.tar"));
        assert!(!is_checkpoint("tokenizer.model"));
    }
}
