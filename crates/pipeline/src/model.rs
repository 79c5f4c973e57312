//! Which module a checkpoint becomes: a model that runs, or weights, from the documents next to it and the options.

use decoder::{Documents, Given, Options, WhyWeights};
use sources::Sources;
use tensor::Tensor;
use torchscript::{Converted, Errors, ScriptOptions};

use crate::{Error, InvalidOption, Result};

/// What the module is, and what is known about the model besides its documents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelOptions {
    /// The kind of module.
    pub architecture: Architecture,
    /// Numbers that no document has.
    pub given: Given,
    /// Whether tensors that the model does not use are kept.
    pub keep_extra: bool,
    /// Whether anything but a model that runs is an error.
    pub require_model: bool,
    /// What the module does with wrong inputs.
    pub errors: Errors,
    /// How a TorchScript module is called.
    pub script: ScriptOptions,
}

/// The kind of module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Architecture {
    /// A model where names and documents describe one, else weights.
    #[default]
    Auto,
    /// Weights: a module that returns its tensors by name.
    Weights,
    /// A model of this architecture; [`architectures`] has the names.
    Named(String),
}

/// The names of the architectures that run.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    decoder::architectures()
}

/// The module that the options ask for. With `single`, the file is converted alone although it may be one of several.
pub(crate) fn convert(
    options: &ModelOptions,
    single: bool,
    sources: &Sources,
    tensors: &[(String, Tensor)],
) -> Result<Converted> {
    let path = sources.path.as_path();
    let auto = options.architecture == Architecture::Auto;
    let one_shard = || {
        torchscript::weights(tensors, options.errors).map(|mut weights| {
            weights.why = Some(WhyWeights::OneShard);
            weights
        })
    };
    let alone = single && sources.is_single();
    let converted = match &options.architecture {
        Architecture::Weights => torchscript::weights(tensors, options.errors),
        Architecture::Auto if alone && sources::shard(path).is_some() => one_shard(),
        Architecture::Auto => torchscript::auto(tensors, &decoder_options(options, sources)?, options.errors),
        Architecture::Named(name) if !architectures().any(|known| known == name) => {
            return Err(InvalidOption::Architecture { name: name.clone() }.into());
        }
        Architecture::Named(name) => {
            torchscript::model(name, tensors, &decoder_options(options, sources)?, options.errors)
        }
    };
    let converted = match converted {
        Err(torchscript::Error::Decoder(decoder::Error::Shard { .. })) if auto && alone => one_shard(),
        Err(torchscript::Error::Decoder(reason)) if reason.leaves_weights_usable() => {
            if let Some(error) = lone_shard(&reason, sources) {
                return Err(error);
            }
            let document = reason.document().map(|file| path.with_file_name(file));
            let path = document.unwrap_or_else(|| sources.root().to_owned());
            return Err(Error::Model { path, root: sources.root().to_owned(), reason: Box::new(reason) });
        }
        converted => converted,
    };
    converted.map_err(|error| Error::at(sources.root())(Error::Module(Box::new(error))))
}

/// The error that a single file is one of several shards.
pub(crate) fn lone_shard(reason: &decoder::Error, sources: &Sources) -> Option<Error> {
    match reason {
        decoder::Error::Shard { count } if sources.is_single() => {
            let of = usize::try_from(*count).unwrap_or(usize::MAX);
            Some(sources::Error::LoneShard { path: sources.path.clone(), number: 1, of }.into())
        }
        _ => None,
    }
}

/// The modules that conversions of `tensors` without further options make: weights, a model, and a model that keeps the
/// tensors that it does not use; each as it returns and as it raises errors.
pub fn usual_modules(
    single: bool,
    sources: &Sources,
    tensors: &[(String, Tensor)],
) -> impl Iterator<Item = Converted> {
    let usual = [(Architecture::Weights, false), (Architecture::Auto, false), (Architecture::Auto, true)];
    let usual = [Errors::Return, Errors::Raise].map(|errors| {
        usual.clone().map(|(architecture, keep_extra)| ModelOptions {
            architecture,
            keep_extra,
            errors,
            ..ModelOptions::default()
        })
    });
    usual.into_iter().flatten().filter_map(move |options| convert(&options, single, sources, tensors).ok())
}

/// What the documents next to the checkpoint and the options say about a model.
pub(crate) fn decoder_options(options: &ModelOptions, sources: &Sources) -> Result<Options> {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    let documents = Documents {
        params: owned(sources.documents.params()?),
        config: owned(sources.documents.config()?),
        adapter: owned(sources.documents.adapter()?),
    };
    Ok(Options { documents, given: options.given, keep_extra: options.keep_extra })
}
