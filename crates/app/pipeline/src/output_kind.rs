//! Output formats of conversions, and the extensions of their files.

use std::path::Path;

use serde::Serialize;

/// Output format of a conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputKind {
    #[default]
    Carton,
    /// One safetensors file, or a folder of them with the documents of the model.
    Safetensors,
    /// PyTorch checkpoint: the zip file that `torch.save` writes.
    Torch,
    /// Model in a repository of NVIDIA Triton, which is a folder.
    Triton,
}

/// Extensions of each output kind. The first one is the default.
const EXTENSIONS: &[(OutputKind, &[&str])] = &[
    (OutputKind::Carton, &["carton"]),
    (OutputKind::Safetensors, &["safetensors"]),
    (OutputKind::Torch, &["pth", "pt", "bin", "ckpt"]),
    (OutputKind::Triton, &["triton"]),
];

impl OutputKind {
    /// Infers the output kind from the extension of a path.
    pub fn from_path(path: &Path) -> Option<Self> {
        let extension = extension(path)?;
        let row = EXTENSIONS.iter().find(|(_, names)| names.contains(&extension.as_str()));
        row.map(|(kind, _)| *kind)
    }

    /// Returns the default extension of the output.
    pub fn extension(self) -> &'static str {
        let names = EXTENSIONS.iter().find(|(kind, _)| *kind == self).map(|(_, names)| *names);
        names.and_then(|names| names.first()).copied().unwrap_or_default()
    }
}

/// Model format that only other programs write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignKind {
    /// File format of llama.cpp.
    Gguf,
    /// Graph of operators, exported from a model's code.
    Onnx,
}

fn extension(path: &Path) -> Option<String> {
    path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase)
}

/// Returns true if the extension of a path looks like that of a format which this crate does not write, such as `x.h5`. A
/// number, as in `llama-3.1`, is not an extension.
pub(crate) fn has_unknown_extension(path: &Path) -> bool {
    let is_format = |extension: String| extension.starts_with(|c: char| c.is_ascii_alphabetic());
    OutputKind::from_path(path).is_none() && extension(path).is_some_and(is_format)
}

/// Infers a format that only other programs write from the extension of a path.
pub(crate) fn foreign_kind(path: &Path) -> Option<ForeignKind> {
    match extension(path)?.as_str() {
        "gguf" => Some(ForeignKind::Gguf),
        "onnx" => Some(ForeignKind::Onnx),
        _ => None,
    }
}
