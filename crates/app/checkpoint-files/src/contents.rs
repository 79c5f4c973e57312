//! What a folder without a checkpoint holds instead.
//!
//! Facts: the names that `TensorFlow`, Keras, Flax, ONNX, llama.cpp, Core ML and Hugging Face's `diffusers` give their
//! files.

use std::fmt;
use std::path::PathBuf;

use crate::listing::{Listing, is_training};

/// Sub-folders that are looked into.
const FOLDERS_MAX: usize = 200;
/// Names that a text lists before it counts the rest.
const SHOWN: usize = 3;

/// What a folder without a checkpoint holds instead. Names are those of files and folders in it. The text follows the
/// folder's name in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contents {
    /// Nothing.
    Nothing,
    /// A pipeline of `diffusers`: each part is a model with a checkpoint of its own.
    Pipeline {
        /// The sub-folders with checkpoints; there is at least one.
        folders: Vec<PathBuf>,
    },
    /// Checkpoints in sub-folders.
    Folders {
        /// The sub-folders with checkpoints, or sub-folders of those; there is at least one.
        folders: Vec<PathBuf>,
    },
    /// A model of another framework.
    Other {
        /// What it is, with its article.
        what: &'static str,
        /// The file or folder that shows it.
        name: String,
    },
    /// The state of a training, without the weights.
    TrainingState {
        /// The files of that state.
        files: Vec<String>,
    },
    /// A model's configuration or tokenizer, without the weights.
    Documents {
        /// All files.
        files: Vec<String>,
        /// Whether the folder is a clone of a Git repository.
        git: bool,
    },
    /// Other files and folders.
    Unknown {
        /// Their names.
        names: Vec<String>,
    },
}

impl Contents {
    pub(crate) fn find(listing: &Listing) -> Self {
        let names = || listing.files.iter().chain(&listing.folders).cloned();
        if names().next().is_none() {
            return Self::Nothing;
        }
        let folders = with_checkpoints(listing);
        if !folders.is_empty() {
            let pipeline = listing.has("model_index.json");
            return if pipeline { Self::Pipeline { folders } } else { Self::Folders { folders } };
        }
        if let Some((what, name)) = other(listing) {
            return Self::Other { what, name };
        }
        let training: Vec<String> = listing.files.iter().filter(|name| is_training(name)).cloned().collect();
        if !training.is_empty() {
            return Self::TrainingState { files: training };
        }
        let is_document = |name: &String| {
            ["config.json", "params.json", "model_index.json"].contains(&name.as_str())
                || name.starts_with("tokenizer")
        };
        if listing.files.iter().any(is_document) {
            let git = listing.has(".gitattributes") || listing.folders.iter().any(|name| name == ".git");
            let files = listing.files.iter().filter(|name| !name.starts_with('.')).cloned().collect();
            return Self::Documents { files, git };
        }
        Self::Unknown { names: names().collect() }
    }
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths = |folders: &[PathBuf]| {
            listed(&folders.iter().map(|folder| format!("{}/", folder.display())).collect::<Vec<_>>())
        };
        match self {
            Self::Nothing => write!(f, "holds no checkpoint: the folder is empty"),
            Self::Pipeline { folders } => {
                write!(f, "is a diffusers pipeline with its checkpoints in {}", paths(folders))
            }
            Self::Folders { folders } => {
                let each = if folders.len() == 1 { "holds one" } else { "hold one each" };
                write!(f, "holds no checkpoint at its top level, but {} {each}", paths(folders))
            }
            Self::Other { what, name } => {
                write!(f, "holds {what} ({name}), not a PyTorch or safetensors checkpoint")
            }
            Self::TrainingState { files } => {
                write!(f, "holds no checkpoint, only the state of a training: {}", listed(files))
            }
            Self::Documents { files, .. } => {
                write!(f, "holds no checkpoint, only {}: the weights are not there", listed(files))
            }
            Self::Unknown { names } => write!(f, "holds no checkpoint, only {}", listed(names)),
        }
    }
}

/// Names as part of a sentence.
pub(crate) fn listed(names: &[String]) -> String {
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

/// The sub-folders with checkpoints, relative to the folder; where there are none, those one level deeper, as in the
/// cache of a model hub: `snapshots/HASH`.
fn with_checkpoints(listing: &Listing) -> Vec<PathBuf> {
    let mut level: Vec<PathBuf> = listing.folders.iter().map(PathBuf::from).collect();
    for _ in 0..2 {
        level.truncate(FOLDERS_MAX);
        let (mut found, mut next) = (Vec::new(), Vec::new());
        for folder in level {
            // A folder that cannot be read holds nothing that could be passed.
            let Ok(listing) = Listing::read(&listing.folder.join(&folder)) else { continue };
            next.extend(listing.folders.iter().map(|name| folder.join(name)));
            if listing.checkpoints().next().is_some() || listing.indexes().next().is_some() {
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

/// A model of another framework, and the name that shows it.
fn other(listing: &Listing) -> Option<(&'static str, String)> {
    /// Whether a name shows a model, and what model that is.
    type Shows = (fn(&str) -> bool, &'static str);
    const FILES: &[Shows] = &[
        (|name| name == "saved_model.pb" || name == "saved_model.pbtxt", "a TensorFlow SavedModel"),
        (|name| name.contains(".data-") && name.contains("-of-"), "a TensorFlow checkpoint"),
        (|name| ends_in(name, &["gguf"]), "a GGUF model"),
        (|name| ends_in(name, &["onnx"]), "an ONNX model"),
        (|name| ends_in(name, &["msgpack"]), "a Flax checkpoint"),
        (|name| ends_in(name, &["h5", "hdf5", "keras"]), "a Keras model"),
        (|name| ends_in(name, &["tflite"]), "a TensorFlow Lite model"),
        (|name| ends_in(name, &["mlmodel"]), "a Core ML model"),
    ];
    const FOLDERS: &[Shows] = &[
        (|name| ends_in(name, &["mlpackage", "mlmodelc"]), "a Core ML model"),
        // The folders in an `.mlpackage`.
        (|name| name == "com.apple.CoreML", "a Core ML model"),
    ];
    let find = |rows: &[Shows], names: &[String]| {
        rows.iter().find_map(|(shows, what)| Some((*what, names.iter().find(|name| shows(name))?.clone())))
    };
    let package = || {
        let data = Listing::read(&listing.folder.join("Data")).ok()?;
        find(FOLDERS, &data.folders).map(|(what, name)| (what, format!("Data/{name}")))
    };
    find(FILES, &listing.files).or_else(|| find(FOLDERS, &listing.folders)).or_else(package)
}

fn ends_in(name: &str, extensions: &[&str]) -> bool {
    name.rsplit_once('.').is_some_and(|(_, extension)| extensions.contains(&extension))
}
