//! The formats that a conversion writes, and the extensions of their files.

use std::path::Path;

use serde::Serialize;

/// A format that checkpoints are converted into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputKind {
    /// A carton.
    #[default]
    Carton,
    /// A safetensors file, or a folder of them with the documents of the model.
    Safetensors,
    /// The zip file that `torch.save` writes.
    Torch,
    /// A model in a repository of NVIDIA Triton, which is a folder.
    Triton,
}

/// The extensions of each kind. The first one is used when the user names no output.
const EXTENSIONS: &[(OutputKind, &[&str])] = &[
    (OutputKind::Carton, &["carton"]),
    (OutputKind::Safetensors, &["safetensors"]),
    (OutputKind::Torch, &["pth", "pt", "bin", "ckpt"]),
    (OutputKind::Triton, &["triton"]),
];

impl OutputKind {
    /// The kind of output that the extension of a path names.
    pub fn from_path(path: &Path) -> Option<Self> {
        let extension = extension(path)?;
        let row = EXTENSIONS.iter().find(|(_, names)| names.contains(&extension.as_str()));
        row.map(|(kind, _)| *kind)
    }

    /// The usual extension of its files.
    pub fn extension(self) -> &'static str {
        let names = EXTENSIONS.iter().find(|(kind, _)| *kind == self).map(|(_, names)| *names);
        names.and_then(|names| names.first()).copied().unwrap_or_default()
    }
}

/// A format of models that another program writes from what this one writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignKind {
    /// A file of llama.cpp.
    Gguf,
    /// A graph of operators.
    Onnx,
}

fn extension(path: &Path) -> Option<String> {
    path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase)
}

/// Whether a file is called as if it was of a format that is not written here, such as `x.h5`. A number, as in `llama-3.1`,
/// is not the name of a format.
pub(crate) fn has_other_extension(path: &Path) -> bool {
    let is_format = |extension: String| extension.starts_with(|c: char| c.is_ascii_alphabetic());
    OutputKind::from_path(path).is_none() && extension(path).is_some_and(is_format)
}

/// The format that a file is called after, if another program writes it.
pub(crate) fn foreign(path: &Path) -> Option<ForeignKind> {
    match extension(path)?.as_str() {
        "gguf" => Some(ForeignKind::Gguf),
        "onnx" => Some(ForeignKind::Onnx),
        _ => None,
    }
}
