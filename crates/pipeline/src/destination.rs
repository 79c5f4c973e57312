//! Where a conversion writes: the kind of output, its path, and whether it is a folder.

use std::path::PathBuf;

use torchscript::Errors;

use crate::output::foreign;
use crate::{
    Architecture, ConvertOptions, Fields, InvalidOption, Names, OutputKind, Result, SafetensorsOptions,
    Setting, Torch,
};

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

/// The first setting that is not the default and that this kind of output does not have.
fn misplaced(options: &ConvertOptions, kind: OutputKind) -> Option<Setting> {
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
