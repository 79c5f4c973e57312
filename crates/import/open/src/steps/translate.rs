//! Translation of a model between the layouts of Meta and Hugging Face, and between released names and those in memory.

use decoder::{
    DecoderNote, DecoderOptions, LayoutDocument, LayoutOwner, ModelDocuments, Overrides, TokenDocuments,
    translate,
};
use families::LayoutId;
use gguf_format::GgufValue;
use gguf_model::{GgufKeys, HuggingFaceModel, KeyDocuments, hugging_face_model, key_documents};
use serde::{Deserialize, Serialize};
use tensor::Tensors;
use torch_import::{Checkpoint, CheckpointValue, CompoundKind, ItemContent};

use super::family::Family;
use crate::files::{self, CheckpointSources};
use crate::{Context, Error, Model, Note, Problem, Result, Step, StepReport, values};

/// Layout of a language model: tensor names and documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum TargetLayout {
    /// The names of Hugging Face's transformers
    #[serde(rename = "hf")]
    #[cfg_attr(feature = "cli", value(name = "hf"))]
    HuggingFace,
    /// The names that the modules of transformers 5 have in memory
    Modules,
    /// The names of Meta's code
    Meta,
}

impl TargetLayout {
    /// Returns the documents of the other layout, which would contradict the new document.
    pub fn replaced_documents(self) -> &'static [&'static str] {
        match self {
            Self::HuggingFace | Self::Modules => &["params.json"],
            Self::Meta => &["config.json", "generation_config.json"],
        }
    }
}

/// Translates a model into the names of a layout, and generates the document of the layout if the model had another. Released names and
/// those of modules have the same document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Translate {
    pub layout: TargetLayout,
    /// False if the output is a single file, which has no place for the document.
    pub writes_document: bool,
    /// True if a model is taken as it is unless it has the names of Meta or of Megatron.
    pub only_others: bool,
    /// True if a model is taken as it is unless it is a GGUF file of numbers whose architecture is known.
    pub only_gguf: bool,
}

impl Translate {
    /// Creates the step for an output that has a place for the document of the layout.
    pub fn new(layout: TargetLayout) -> Self {
        Self { layout, writes_document: true, only_others: false, only_gguf: false }
    }

    /// Creates the step for a model that is taken as it is unless it has the names of Meta or of Megatron.
    pub fn from_others(layout: TargetLayout) -> Self {
        Self { only_others: true, ..Self::new(layout) }
    }
}

impl Translate {
    /// Creates the step that gives the tensors of a GGUF file the names of Hugging Face, if they are numbers and its architecture is
    /// known.
    pub fn from_gguf() -> Self {
        Self { only_gguf: true, ..Self::new(TargetLayout::HuggingFace) }
    }
}

impl Step for Translate {
    fn apply(&self, model: &mut Model, context: &Context<'_>) -> Result<StepReport> {
        if self.only_gguf {
            model.tensors_mut();
            let is_known =
                model.format() == "gguf" && hugging_face_of(model).is_ok_and(|made| made.unknown.is_empty());
            return if is_known { name_gguf(model) } else { Ok(StepReport::Names) };
        }
        check_megatron_settings(&model.checkpoint)?;
        model.tensors_mut();
        let family = || Family::find(&model.sources, model.tensors());
        let is_other = |name: &str| OTHER_EMBEDDINGS.iter().any(|other| name.ends_with(other));
        if self.only_others && !model.tensors().names().any(is_other) {
            return match family() {
                Ok(family) if !family.has(LayoutId::RELEASED) => rename(&family, LayoutId::RELEASED, model),
                _ => Ok(StepReport::Names),
            };
        }
        if self.layout == TargetLayout::HuggingFace && model.format() == "gguf" {
            return name_gguf(model);
        }
        let layout = match self.layout {
            TargetLayout::Modules => return rename(&family()?, LayoutId::MODULES, model),
            TargetLayout::HuggingFace => match family() {
                Ok(family) => return rename(&family, LayoutId::RELEASED, model),
                Err(_) => LayoutOwner::HuggingFace,
            },
            TargetLayout::Meta => LayoutOwner::Meta,
        };
        let tensors = model.take_tensors();
        let sources = &model.sources;
        let mut options = decoder_options(context.overrides, false, sources)?;
        if self.writes_document {
            options.documents.tokens = token_documents(sources)?;
        }
        let translated = translate(tensors, &options, layout);
        let translated = translated.map_err(|reason| translation_error(reason, sources))?;
        let is_relevant = |note: &DecoderNote| self.writes_document || !note.is_about_new_document();
        model.notes.extend(translated.notes.into_iter().filter(is_relevant).map(Note::LayoutTranslation));
        let origins = model.origins.take().map(|old| {
            translated.origins.into_iter().map(|place| old.get(place?).cloned().flatten()).collect()
        });
        model.set_tensors(translated.tensors, origins);
        model.document = translated.document;
        Ok(StepReport::Names)
    }
}

/// Gives the tensors of a family the names that it is released with, or those in memory. Its documents stay as they are.
fn rename(family: &Family, to: LayoutId, model: &mut Model) -> Result<StepReport> {
    if family.has(to) {
        let owner = if to == LayoutId::MODULES { "the module" } else { LayoutOwner::HuggingFace.name() };
        model.notes.push(Note::LayoutTranslation(DecoderNote::SameLayout { owner }));
        return Ok(StepReport::Names);
    }
    let (tensors, places) =
        family.translate(model.tensors(), to).map_err(|error| error.in_file(model.root()))?;
    let origins = model.origins.take();
    let origins =
        origins.map(|old| places.iter().map(|place| old.get((*place)?).cloned().flatten()).collect());
    model.set_tensors(tensors, origins);
    Ok(StepReport::Names)
}

/// Gives the tensors of a GGUF file the names of Hugging Face, with the configuration that its keys describe.
fn name_gguf(model: &mut Model) -> Result<StepReport> {
    let made = hugging_face_of(model)?;
    if let Some(tensor) = made.unknown.first().cloned() {
        let problem = gguf_model::Problem::NoOtherName { tensor, architecture: made.architecture() };
        return Err(Error::from(problem).in_file(model.root()));
    }
    let keys = gguf_keys(&model.checkpoint);
    let KeyDocuments { documents, reason, .. } = key_documents(&keys);
    model.pre_tokenizer = keys.get("tokenizer.ggml.pre").and_then(|name| Some(name.text()?.into_owned()));
    let origins = model.origins.take();
    let origins =
        origins.map(|old| made.places.iter().map(|place| old.get(*place).cloned().flatten()).collect());
    model.set_tensors(made.tensors.into_iter().collect::<Tensors>(), origins);
    model.document = Some(LayoutDocument::of_hugging_face(made.config));
    model.key_documents = documents;
    model.notes.extend(reason.map(|reason| Note::GgufTokenizer { reason }));
    Ok(StepReport::Names)
}

/// Returns the tensors of a GGUF file with the names of Hugging Face, and the configuration that its keys describe.
///
/// # Errors
/// When the architecture is not known, tensors are blocks, or a tensor has another shape than its role.
pub fn hugging_face_of(model: &Model) -> Result<HuggingFaceModel> {
    let at_root = |error: Error| error.in_file(model.root());
    let blocks = model.tensors().compounds().iter().find_map(|compound| match &compound.kind {
        CompoundKind::Blocks { scheme } => Some((compound.name.clone(), scheme.clone())),
        _ => None,
    });
    if let Some((tensor, scheme)) = blocks {
        return Err(at_root(gguf_model::Problem::Blocks { tensor, scheme }.into()));
    }
    hugging_face_model(&gguf_keys(&model.checkpoint), model.tensors().as_slice()).map_err(at_root)
}

/// Returns the keys of a GGUF file.
fn gguf_keys(checkpoint: &Checkpoint) -> GgufKeys {
    let key = |(name, value): (&str, &CheckpointValue)| {
        let key = name.strip_prefix("__metadata__.")?.to_owned();
        match value {
            CheckpointValue::Gguf(value) => Some((key, value.clone())),
            CheckpointValue::Text(text) => Some((key, GgufValue::Text(text.to_string().into()))),
            _ => None,
        }
    };
    checkpoint.values().filter_map(key).collect()
}

/// Returns the names and contents of the documents in a GGUF file: its tokenizer, as far as its keys describe it, and its templates of
/// chats. There are none in other files.
pub fn documents_in(checkpoint: &Checkpoint) -> Vec<(String, Vec<u8>)> {
    let keys = gguf_keys(checkpoint);
    if keys.is_empty() { Vec::new() } else { key_documents(&keys).documents }
}

/// Names of the embeddings in the layouts that are translated.
const OTHER_EMBEDDINGS: [&str; 2] = ["tok_embeddings.weight", "embedding.word_embeddings.weight"];

/// Settings of Megatron-LM with which the same tensors stand for other weights: norms without their 1, and rows of queries and keys in
/// another order.
const MEGATRON_SETTINGS: [&str; 2] = ["args.apply_layernorm_1p", "args.rotary_interleaved"];

fn check_megatron_settings(checkpoint: &Checkpoint) -> Result<()> {
    let values = checkpoint.items.iter().enumerate().filter_map(|(place, item)| match &item.content {
        ItemContent::Value(value) if MEGATRON_SETTINGS.contains(&item.name.as_str()) => Some((place, value)),
        _ => None,
    });
    let mut rendered = values::render(checkpoint, values);
    let set = rendered.find(|(_, value)| value.as_bool() == Some(true));
    let Some((place, _)) = set else { return Ok(()) };
    let setting = checkpoint.items.get(place).map(|item| item.name.clone()).unwrap_or_default();
    Err(Problem::MegatronSetting { setting }.into())
}

/// Reads the documents of the tokenizer next to a checkpoint.
fn token_documents(sources: &CheckpointSources) -> Result<TokenDocuments> {
    let read = |name| sources.documents.read(name);
    Ok(TokenDocuments {
        generation_config: read("generation_config.json")?,
        tokenizer_config: read("tokenizer_config.json")?,
        special_tokens_map: read("special_tokens_map.json")?,
        tokenizer: read("tokenizer.json")?,
    })
}

pub(crate) fn translation_error(reason: Error, sources: &CheckpointSources) -> Error {
    lone_shard(&reason, sources).unwrap_or_else(|| in_checkpoint(reason, sources))
}

/// Adds the document that the error is about, or the checkpoint.
pub fn in_checkpoint(error: Error, sources: &CheckpointSources) -> Error {
    match error.location().path {
        Some(document) => error.in_file(&sources.path.with_file_name(document)),
        None => error.in_file(sources.root()),
    }
}

/// Converts the error that a single file is one of several shards.
pub fn lone_shard(error: &Error, sources: &CheckpointSources) -> Option<Error> {
    match error.detail() {
        Some(decoder::Problem::Shard { count }) if sources.is_single() => {
            let of = usize::try_from(*count).unwrap_or(usize::MAX);
            Some(files::Problem::LoneShard { path: sources.path.clone(), number: 1, of }.into())
        }
        _ => None,
    }
}

impl Model {
    /// Collects the documents of the model, of which those next to the checkpoint do not describe a GGUF file, and the given
    /// hyperparameters.
    ///
    /// # Errors
    /// When a document cannot be read.
    pub fn decoder_options(&self, given: Overrides, keep_extra: bool) -> Result<DecoderOptions> {
        let mut options = decoder_options(given, keep_extra, &self.sources)?;
        if let Some(config) = self.document.as_ref().filter(|_| self.format() == "gguf") {
            options.documents.config = Some(config.text(self.tensors()));
        }
        Ok(options)
    }
}

/// Collects the documents next to the checkpoint and the given hyperparameters.
///
/// # Errors
/// When a document cannot be read.
pub(crate) fn decoder_options(
    given: Overrides,
    keep_extra: bool,
    sources: &CheckpointSources,
) -> Result<DecoderOptions> {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    let documents = ModelDocuments {
        params: owned(sources.documents.params()?),
        config: owned(sources.documents.config()?),
        adapter: owned(sources.documents.adapter()?),
        tokens: TokenDocuments::default(),
    };
    Ok(DecoderOptions { documents, overrides: given, keep_extra })
}
