//! Output formats of conversions, and the extensions of their files.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Output format of a conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum OutputKind {
    /// A carton
    #[default]
    Carton,
    /// A safetensors file, or a folder in Hugging Face's layout
    Safetensors,
    /// A checkpoint as torch.save writes it
    #[serde(rename = "pth")]
    #[cfg_attr(feature = "cli", value(name = "pth"))]
    Torch,
    /// A model in a folder that NVIDIA Triton serves (a model repository); other models there stay
    Triton,
}

impl OutputKind {
    /// All kinds, in the order in which one is chosen by the options that it has.
    pub const ALL: [Self; 4] = [Self::Carton, Self::Safetensors, Self::Torch, Self::Triton];

    /// Infers the output kind from the extension of a path.
    pub fn from_path(path: &Path) -> Option<Self> {
        Some(match extension(path)?.as_str() {
            "carton" => Self::Carton,
            "safetensors" => Self::Safetensors,
            "pth" | "pt" | "bin" | "ckpt" => Self::Torch,
            "triton" => Self::Triton,
            _ => return None,
        })
    }

    /// Returns the name of the kind, which is also the default extension of the output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Carton => "carton",
            Self::Safetensors => "safetensors",
            Self::Torch => "pth",
            Self::Triton => "triton",
        }
    }
}

impl fmt::Display for OutputKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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
