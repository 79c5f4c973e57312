//! Diagnosis of a folder without a checkpoint, for error messages.
//!
//! Facts: the names that `TensorFlow`, Keras, Flax, ONNX, llama.cpp, Core ML, `tensordict` and Hugging Face's `diffusers` give
//! their files.

use std::fmt;
use std::path::PathBuf;

use byte_source::Folder;

use crate::files::folder_names::{PIPELINE_INDEX, checkpoints, indexes, is_training_state};

/// Description of a folder that `TensorDict.memmap` wrote.
pub const TENSOR_DICT: &str = "a memory-mapped TensorDict";
/// Maximum number of sub-folders that are searched per level.
const FOLDERS_MAX: usize = 200;
/// Maximum number of names that a message lists; the rest are counted.
const SHOWN: usize = 3;

/// Contents of a folder without a checkpoint. All names are those of files and folders in it. The `Display` text continues a
/// sentence that begins with the folder's name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FolderDiagnosis {
    Nothing,
    /// Pipeline of `diffusers`, in which each sub-folder is a model with a checkpoint of its own.
    Pipeline {
        /// Sub-folders with checkpoints; at least one.
        folders: Vec<PathBuf>,
    },
    /// Checkpoints in sub-folders only.
    Folders {
        /// Sub-folders with checkpoints, one or two levels deep; at least one.
        folders: Vec<PathBuf>,
    },
    /// Model of another framework.
    OtherFramework {
        /// Name of the model format with its article, such as `a GGUF model`.
        what: &'static str,
        /// File or folder by which the format was recognised.
        name: String,
    },
    /// Training state, such as optimizer files, without the weights.
    TrainingState {
        files: Vec<String>,
    },
    /// Configuration or tokenizer of a model, without the weights.
    Documents {
        /// Names of all files that are not hidden.
        files: Vec<String>,
        /// True if the folder is a clone of a Git repository.
        git: bool,
    },
    Unknown {
        /// Names of all files and folders.
        names: Vec<String>,
    },
}

impl FolderDiagnosis {
    pub(crate) fn find(folder: &Folder) -> Self {
        let listing = &folder.listing;
        let names = || listing.files.iter().chain(&listing.folders).cloned();
        if names().next().is_none() {
            return Self::Nothing;
        }
        let folders = folders_with_checkpoints(folder);
        if !folders.is_empty() {
            let pipeline = listing.has_file(PIPELINE_INDEX);
            return if pipeline { Self::Pipeline { folders } } else { Self::Folders { folders } };
        }
        if let Some((what, name)) = detect_other_framework(folder) {
            return Self::OtherFramework { what, name };
        }
        let training: Vec<String> =
            listing.files.iter().filter(|name| is_training_state(name)).cloned().collect();
        if !training.is_empty() {
            return Self::TrainingState { files: training };
        }
        let is_document = |name: &String| {
            ["config.json", "params.json", PIPELINE_INDEX].contains(&name.as_str())
                || name.starts_with("tokenizer")
        };
        if listing.files.iter().any(is_document) {
            let git = listing.has_file(".gitattributes") || listing.has_folder(".git");
            let files = listing.files.iter().filter(|name| !name.starts_with('.')).cloned().collect();
            return Self::Documents { files, git };
        }
        Self::Unknown { names: names().collect() }
    }
}

impl fmt::Display for FolderDiagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths = |folders: &[PathBuf]| {
            enumerate_names(
                &folders.iter().map(|folder| format!("{}/", folder.display())).collect::<Vec<_>>(),
            )
        };
        match self {
            Self::Nothing => write!(f, "contains no checkpoint: the folder is empty"),
            Self::Pipeline { folders } => {
                write!(f, "is a diffusers pipeline with its checkpoints in {}", paths(folders))
            }
            Self::Folders { folders } => {
                let each = if folders.len() == 1 { "contains one" } else { "contain one each" };
                write!(f, "contains no checkpoint at its top level, but {} {each}", paths(folders))
            }
            Self::OtherFramework { what, name } => {
                write!(f, "contains {what} ({name}), not a PyTorch or safetensors checkpoint")
            }
            Self::TrainingState { files } => {
                write!(f, "contains no checkpoint, only the state of a training: {}", enumerate_names(files))
            }
            Self::Documents { files, .. } => {
                write!(
                    f,
                    "contains no checkpoint, only {}: the weights are not there",
                    enumerate_names(files)
                )
            }
            Self::Unknown { names } => write!(f, "contains no checkpoint, only {}", enumerate_names(names)),
        }
    }
}

/// Joins names into an enumeration for a sentence, such as `a, b and 3 more`.
pub(crate) fn enumerate_names(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] if all.len() < SHOWN => format!("{} and {last}", all.join(", ")),
        names => {
            let first = names.get(..SHOWN).unwrap_or_default();
            format!("{} and {} more", first.join(", "), names.len().saturating_sub(SHOWN))
        }
    }
}

/// Returns the sub-folders with checkpoints, relative to the folder. If there are none, searches one level deeper, which
/// finds `snapshots/HASH` in the cache of a model hub.
fn folders_with_checkpoints(top: &Folder) -> Vec<PathBuf> {
    let mut level: Vec<PathBuf> = top.listing.folders.iter().map(PathBuf::from).collect();
    for _ in 0..2 {
        level.truncate(FOLDERS_MAX);
        let (mut found, mut next) = (Vec::new(), Vec::new());
        for folder in level {
            // A folder that cannot be listed cannot be passed as an input either.
            let Ok(inner) = top.below(&folder) else { continue };
            next.extend(inner.listing.folders.iter().map(|name| folder.join(name)));
            if checkpoints(&inner.listing).next().is_some() || indexes(&inner.listing).next().is_some() {
                found.push(folder);
            }
        }
        if !found.is_empty() {
            return found;
        }
        level = next;
    }
    Vec::new()
}

/// Recognises a model of another framework; returns its description and the file or folder name that gave it away.
fn detect_other_framework(folder: &Folder) -> Option<(&'static str, String)> {
    /// Test of a file name, and the description of the model format that a match stands for.
    type FrameworkPattern = (fn(&str) -> bool, &'static str);
    const FILES: &[FrameworkPattern] = &[
        (|name| name == "saved_model.pb" || name == "saved_model.pbtxt", "a TensorFlow SavedModel"),
        (|name| name.contains(".data-") && name.contains("-of-"), "a TensorFlow checkpoint"),
        (|name| has_any_extension(name, &["onnx"]), "an ONNX model"),
        (|name| has_any_extension(name, &["msgpack"]), "a Flax checkpoint"),
        (|name| has_any_extension(name, &["h5", "hdf5", "keras"]), "a Keras model"),
        (|name| has_any_extension(name, &["tflite"]), "a TensorFlow Lite model"),
        (|name| has_any_extension(name, &["mlmodel"]), "a Core ML model"),
        (|name| has_any_extension(name, &["memmap"]), TENSOR_DICT),
    ];
    const FOLDERS: &[FrameworkPattern] = &[
        (|name| has_any_extension(name, &["mlpackage", "mlmodelc"]), "a Core ML model"),
        // Folder inside an `.mlpackage`.
        (|name| name == "com.apple.CoreML", "a Core ML model"),
    ];
    let find = |rows: &[FrameworkPattern], names: &[String]| {
        rows.iter().find_map(|(shows, what)| Some((*what, names.iter().find(|name| shows(name))?.clone())))
    };
    let package = || {
        let data = folder.below("Data").ok()?;
        find(FOLDERS, &data.listing.folders).map(|(what, name)| (what, format!("Data/{name}")))
    };
    let listing = &folder.listing;
    let memmaps = |name: &String| {
        let below = folder.below(name).ok()?;
        let file = below.listing.files.into_iter().find(|file| has_any_extension(file, &["memmap"]))?;
        Some((TENSOR_DICT, format!("{name}/{file}")))
    };
    let tensor_dict = || listing.folders.iter().take(FOLDERS_MAX).find_map(memmaps);
    find(FILES, &listing.files)
        .or_else(|| find(FOLDERS, &listing.folders))
        .or_else(package)
        .or_else(tensor_dict)
}

fn has_any_extension(name: &str, extensions: &[&str]) -> bool {
    name.rsplit_once('.').is_some_and(|(_, extension)| extensions.contains(&extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_enumeration_shows_at_most_four_names() {
        for (names, text) in [
            (&[][..], ""),
            (&["a"], "a"),
            (&["a", "b"], "a and b"),
            (&["a", "b", "c"], "a, b and c"),
            (&["a", "b", "c", "d"], "a, b, c and 1 more"),
            (&["a", "b", "c", "d", "e"], "a, b, c and 2 more"),
        ] {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(enumerate_names(&names), text);
        }
    }
}
