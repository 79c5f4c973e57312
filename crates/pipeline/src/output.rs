//! What a conversion writes, and where.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use torchscript::Errors;

use crate::{Architecture, ConvertOptions, Fields, InvalidOption, Names, Result, SafetensorsOptions, Torch};

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
    /// The kind of a file that is called so.
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

/// Where a conversion writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) kind: OutputKind,
    /// The file or folder; `None` for one next to the input.
    pub(crate) path: Option<PathBuf>,
    /// Whether it is a folder for the files of a model.
    pub(crate) is_folder: bool,
}

impl Destination {
    /// What the options ask for: the kind that they name, or that of the output's extension.
    pub(crate) fn new(options: &ConvertOptions) -> Result<Self> {
        let path = options.output.clone();
        let by_name = path.as_deref().and_then(OutputKind::from_path);
        if let Some(path) = &path
            && options.to.is_none()
            && let Some(kind) = foreign(path)
        {
            return Err(InvalidOption::ForeignOutput { path: path.clone(), kind }.into());
        }
        let needs_folder = options.needs_folder();
        let usual = match options.names {
            // What Meta's code loads.
            Some(Names::Meta) if options.safetensors == SafetensorsOptions::default() => OutputKind::Torch,
            _ if needs_folder => OutputKind::Safetensors,
            _ => OutputKind::Carton,
        };
        let kind = options.to.or(by_name).unwrap_or(usual);
        if let Some(setting) = misplaced(options, kind) {
            return Err(InvalidOption::Misplaced { setting }.into());
        }
        // A carton is always one file. Safetensors are one if it is called so, and a checkpoint unless a document describes it.
        let is_folder = match kind {
            OutputKind::Carton => false,
            OutputKind::Safetensors => {
                needs_folder || path.as_deref().is_some_and(|path| path.is_dir() || by_name.is_none())
            }
            OutputKind::Torch => needs_folder,
            OutputKind::Triton => true,
        };
        Ok(Self { kind, path, is_folder })
    }
}

/// Something that not every kind of output has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Setting {
    /// Fields of carton.toml.
    Fields,
    /// The model's name.
    Name,
    /// A file with fields of carton.toml.
    Config,
    /// Files in `misc/`.
    Misc,
    /// A self test.
    SelfTest,
    /// The PyTorch that a carton requires.
    Torch,
    /// What the module is.
    Model,
    /// Whose names and documents a model gets.
    Names,
    /// Which tensors of a checkpoint are used.
    Selection,
    /// What is replaced in the names of tensors.
    Renames,
    /// What is known about a model besides its documents.
    Facts,
    /// What is written of tensors that share memory.
    Ties,
    /// The most bytes in one file.
    ShardSize,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fields | Self::Config => "only a carton has fields such as a license",
            Self::Name => "a file of tensors has no name for the model",
            Self::Misc => "only a carton keeps files in misc/",
            Self::SelfTest => "only a carton has self tests",
            Self::Torch => "only a carton requires a version of PyTorch",
            Self::Model => "only cartons and Triton repositories hold models that run",
            Self::Names => "only safetensors and checkpoints can be converted into another layout",
            Self::Selection | Self::Renames | Self::Facts => "a model that is in a carton is used as it is",
            Self::Ties | Self::ShardSize => "applies only to safetensors",
        })
    }
}

/// The first setting that is not the default and that this kind of output does not have.
pub(crate) fn misplaced(options: &ConvertOptions, kind: OutputKind) -> Option<Setting> {
    use OutputKind::{Carton, Safetensors, Torch as Checkpoint, Triton};
    let (safetensors, model) = (SafetensorsOptions::default(), &options.model);
    let has_fields = Fields { name: None, ..options.fields.clone() } != Fields::default();
    let is_other_model = model.require_model
        || model.keep_extra
        || model.architecture != Architecture::Auto
        || model.errors != Errors::default();
    let settings: [(Setting, bool, &[OutputKind]); 10] = [
        (Setting::Names, options.names.is_some(), &[Safetensors, Checkpoint]),
        (Setting::Fields, has_fields, &[Carton]),
        (Setting::Name, options.fields.name.is_some(), &[Carton, Triton]),
        (Setting::Config, options.config.is_some(), &[Carton]),
        (Setting::Misc, !options.misc.is_empty(), &[Carton]),
        (Setting::SelfTest, options.self_test, &[Carton]),
        (Setting::Torch, options.torch != Torch::default(), &[Carton]),
        (Setting::Model, is_other_model, &[Carton, Triton]),
        (Setting::Ties, options.safetensors.ties != safetensors.ties, &[Safetensors]),
        (Setting::ShardSize, options.safetensors.max_shard_size.is_some(), &[Safetensors]),
    ];
    let misplaced = settings.iter().find(|(_, is_set, kinds)| *is_set && !kinds.contains(&kind));
    misplaced.map(|(setting, ..)| *setting)
}

/// Whether a file is called as if it was of a format that is not written here, such as `x.h5`. A number, as in `llama-3.1`,
/// is not the name of a format.
pub(crate) fn has_other_extension(path: &Path) -> bool {
    let is_format = |extension: String| extension.starts_with(|c: char| c.is_ascii_alphabetic());
    OutputKind::from_path(path).is_none() && extension(path).is_some_and(is_format)
}

fn foreign(path: &Path) -> Option<ForeignKind> {
    match extension(path)?.as_str() {
        "gguf" => Some(ForeignKind::Gguf),
        "onnx" => Some(ForeignKind::Onnx),
        _ => None,
    }
}
