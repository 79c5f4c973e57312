//! Which architecture a checkpoint has, and the decoder that its documents and tensors describe.

use tensor::Tensors;

use crate::architecture::Architecture;
use crate::architectures::{ARCHITECTURES, llama};
use crate::documents::config::Config;
use crate::documents::params::Params;
use crate::facts::Facts;
use crate::layout::{HUGGING_FACE, Layout, META};
use crate::sizes::{Decoder, head_dim_without_document};
use crate::weight::Part;
use crate::{Error, Given, Note, Result, WhyWeights};

/// The texts of the documents next to a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct Documents {
    /// Meta's `params.json`.
    pub params: Option<String>,
    /// Hugging Face's `config.json`.
    pub config: Option<String>,
    /// `adapter_config.json`, which comes with tensors that only change another model.
    pub adapter: Option<String>,
}

/// What is known about a checkpoint besides its tensors, and what to do with unused tensors.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The documents next to the checkpoint.
    pub documents: Documents,
    /// Numbers that the documents omit.
    pub given: Given,
    /// Whether tensors that the model does not use are kept; otherwise they are an error.
    pub keep_extra: bool,
}

/// What a checkpoint turned out to be.
#[derive(Debug)]
pub enum Detected {
    /// A decoder that can run.
    Model(Box<Decoder>),
    /// Only weights.
    Weights {
        /// Why it is not a model.
        why: WhyWeights,
        /// What a user should know.
        notes: Vec<Note>,
    },
}

/// The names of the architectures that have a forward.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    ARCHITECTURES.iter().map(|architecture| architecture.name)
}

/// The architecture that `is_it` recognises.
pub(crate) fn architecture(is_it: impl Fn(&Architecture) -> bool) -> Option<&'static Architecture> {
    ARCHITECTURES.iter().copied().find(|architecture| is_it(architecture))
}

/// The decoder of the architecture `name` that has these tensors.
///
/// # Errors
/// When there is no such architecture, the tensors' names are not the architecture's, or the documents omit
/// what the shapes do not reveal or disagree with the shapes. [`Decoder::assign`] looks at the other tensors.
pub fn named(name: &str, tensors: &Tensors, options: &Options) -> Result<Decoder> {
    let Some(architecture) = architecture(|known| known.name == name) else {
        return Err(Error::UnknownArchitecture { name: name.to_owned() });
    };
    if architecture.has_layout(&META) && META.missing_from(tensors).is_none() {
        return from_meta(tensors, options);
    }
    from_hugging_face(architecture, tensors, options)
}

/// The decoder that the names and documents describe, or why these are only weights.
///
/// # Errors
/// As [`named`], and when numbers are given for tensors that are only weights.
pub fn detect(tensors: &Tensors, options: &Options) -> Result<Detected> {
    let model = |decoder| Detected::Model(Box::new(decoder));
    match choice(tensors, options)? {
        Choice::Meta => from_meta(tensors, options).map(model),
        Choice::HuggingFace(architecture) => from_hugging_face(architecture, tensors, options).map(model),
        Choice::Weights(why) if !options.given.is_empty() => Err(Error::NotAModel { why }),
        Choice::Weights(why) => {
            let named_alike = [&META, &HUGGING_FACE].iter().any(|it| it.missing_from(tensors).is_none());
            let note = (why == WhyWeights::NoDocuments && named_alike).then_some(Note::NamesOfLlama);
            Ok(Detected::Weights { why, notes: note.into_iter().collect() })
        }
    }
}

/// What to make of a checkpoint.
enum Choice {
    /// A LLaMA with Meta's names.
    Meta,
    /// An architecture with Hugging Face's names.
    HuggingFace(&'static Architecture),
    Weights(WhyWeights),
}

fn choice(tensors: &Tensors, options: &Options) -> Result<Choice> {
    let documents = &options.documents;
    if let Some(adapter) = &documents.adapter {
        let adapter = Config::from_json(adapter).ok();
        let base =
            adapter.as_ref().and_then(|adapter| adapter.text("base_model_name_or_path").ok().flatten());
        return Ok(Choice::Weights(WhyWeights::Adapter { base: base.map(shortened) }));
    }
    let missing_of_meta = META.missing_from(tensors);
    if missing_of_meta.is_none() && (documents.params.is_some() || !options.given.is_empty()) {
        return Ok(Choice::Meta);
    }
    // The names of any of Hugging Face's transformers, complete or not, plain or quantized.
    let is_transformer = tensors.iter().any(|(name, _)| name.contains("layers.0.self_attn."));
    let config = match &documents.config {
        Some(text) => match Config::from_json(text) {
            Ok(config) => Some(config),
            Err(error) if is_transformer => return Err(error),
            Err(_) => None,
        },
        None => None,
    };
    let Some(config) = config else {
        return Ok(Choice::Weights(match missing_of_meta {
            Some(name) if documents.params.is_some() && !is_transformer => WhyWeights::MissingTensor { name },
            _ if documents.params.is_some() => WhyWeights::NoConfig,
            _ if is_transformer => WhyWeights::NoDocuments,
            _ if tensors.iter().any(|(name, _)| name.contains("layers.0.attention.w")) => {
                WhyWeights::NoDocuments
            }
            _ => WhyWeights::NoArchitecture,
        }));
    };
    from_config(&config, tensors, is_transformer)
}

/// What to make of a checkpoint with a `config.json`.
fn from_config(config: &Config, tensors: &Tensors, is_transformer: bool) -> Result<Choice> {
    let has = |wanted: &str| tensors.iter().any(|(name, _)| name == wanted);
    let model_type = config.get("model_type").and_then(serde_json::Value::as_str);
    let class = class(config);
    let matches = |architecture: &&&Architecture| match model_type {
        Some(model_type) => model_type == architecture.name,
        None => class.is_some_and(|class| class.strip_suffix("ForCausalLM") == Some(architecture.class)),
    };
    let Some(architecture) = ARCHITECTURES.iter().find(matches) else {
        return Ok(Choice::Weights(match model_type {
            Some(model_type) => WhyWeights::ModelType { model_type: shortened(model_type) },
            None => WhyWeights::NoModelType,
        }));
    };
    if is_transformer {
        config.reject_quantized()?;
    }
    if let Err(tensor) = layout(architecture, tensors) {
        return Ok(Choice::Weights(if is_bare(architecture, has) {
            WhyWeights::BareModel { class: architecture.class }
        } else {
            WhyWeights::NotThisArchitecture { architecture: architecture.name, tensor }
        }));
    }
    let is_causal = class.is_none_or(|class| class.ends_with("ForCausalLM"));
    let output = format!("{}.weight", HUGGING_FACE.output);
    if !is_causal && !has(&output) {
        let class = shortened(class.unwrap_or_default());
        return Ok(Choice::Weights(WhyWeights::OtherHead { class }));
    }
    Ok(Choice::HuggingFace(architecture))
}

/// Whether these are the tensors of the architecture's module without its output matrix, whose names are shorter.
fn is_bare(architecture: &Architecture, has: impl Fn(&str) -> bool) -> bool {
    let has = |name: String| name.strip_prefix("model.").is_some_and(&has);
    architecture
        .layouts
        .iter()
        .any(|layout| has(format!("{}.weight", layout.embedding)) && has(layout.weight(0, layout.sign)))
}

/// The class that a config.json names first.
fn class(config: &Config) -> Option<&str> {
    config.get("architectures")?.as_array()?.first()?.as_str()
}

/// Text from a document, cut so that it fits on a line.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 80;
    let short: String = text.chars().take(SHOWN).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

/// A LLaMA with Meta's names.
fn from_meta(tensors: &Tensors, options: &Options) -> Result<Decoder> {
    let (given, document) = (&options.given, &options.documents.params);
    let mut params = match document {
        Some(text) => Params::from_json(text)?,
        None => Params::from_head_dim(head_dim_without_document(&META, tensors, given)?),
    };
    let heads_given = params.fill_in(given)?;
    if let Some(count) = params.shard_count(tensors) {
        return Err(Error::Shard { count });
    }
    let facts = Facts { has_document: document.is_some(), heads_given, ..params.facts(tensors) };
    Decoder::new(&llama::ARCHITECTURE, &META, facts, tensors)
}

/// An architecture with Hugging Face's names.
fn from_hugging_face(
    architecture: &'static Architecture,
    tensors: &Tensors,
    options: &Options,
) -> Result<Decoder> {
    let layout = layout(architecture, tensors)
        .map_err(|name| Error::NotThisArchitecture { architecture: architecture.name, name })?;
    let (given, document) = (&options.given, &options.documents.config);
    let mut config = match document {
        Some(text) => Config::from_json(text)?,
        None if architecture.works_without_config => {
            Config::from_head_dim(head_dim_without_document(layout, tensors, given)?)
        }
        None => return Err(Error::NoConfig { architecture: architecture.name }),
    };
    if let Some(other) = config.text("model_type")?.filter(|model_type| *model_type != architecture.name) {
        return Err(config.wrong("model_type", &format!("{other:?}"), format!("{:?}", architecture.name)));
    }
    let heads_given = config.fill_in(given, architecture.config)?;
    let has_document = document.is_some();
    let config = config.with_layers(layers(layout, tensors)?);
    let facts = architecture.facts(&config)?;
    let facts = Facts { has_document, heads_given, tied: facts.tied || !has_document, ..facts };
    Decoder::new(architecture, layout, facts, tensors)
}

/// The layout with a config.json that these tensors have; otherwise, a tensor that is missing.
fn layout(architecture: &Architecture, tensors: &Tensors) -> Result<&'static Layout, String> {
    let mut missing = String::new();
    for layout in architecture.layouts.iter().filter(|layout| layout.is(&HUGGING_FACE)) {
        match layout.missing_from(tensors) {
            None => return Ok(layout),
            Some(name) if missing.is_empty() => missing = name,
            Some(_) => {}
        }
    }
    Err(missing)
}

/// The number of layers that the checkpoint has. Lists are made of this length, so each layer needs a tensor.
fn layers(layout: &Layout, tensors: &Tensors) -> Result<u64> {
    let n_layers = layout.count_layers(tensors.names());
    if n_layers <= tensors.len() as u64 {
        return Ok(n_layers);
    }
    let has_tensors = |layer: &u64| tensors.names().any(|name| layout.layer_number(name) == Some(*layer));
    let missing = (0..n_layers).find(|layer| !has_tensors(layer)).unwrap_or_default();
    Err(Error::MissingTensor { name: layout.weight(missing, Part::Wq), n_layers })
}
