//! Translation of a language model between the layouts of Meta and Hugging Face: tensor names and documents.

use checkpoint_files::CheckpointSources;
use decoder::{DecoderNote, HUGGING_FACE, LayoutDocument, META, Overrides, TokenDocuments, translate};
use serde::{Deserialize, Serialize};
use tensor::Tensors;

use crate::note_collector::NoteCollector;
use crate::{Error, Note, Result, model};

/// Layout of a language model: tensor names and documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum TargetLayout {
    /// The names of Hugging Face's transformers
    #[serde(rename = "hf")]
    #[cfg_attr(feature = "cli", value(name = "hf"))]
    HuggingFace,
    /// The names of Meta's code
    Meta,
}

impl TargetLayout {
    /// Returns the documents of the other layout, which would contradict the new document.
    pub(crate) fn replaced_documents(self) -> &'static [&'static str] {
        match self {
            Self::HuggingFace => &["params.json"],
            Self::Meta => &["config.json", "generation_config.json"],
        }
    }
}

/// Tensors of a model, and the document of its layout if the layout changed.
pub(crate) struct TranslatedTensors {
    pub(crate) tensors: Tensors,
    /// Position of each tensor in the list that was translated; `None` for a tensor that was generated.
    pub(crate) origins: Vec<Option<usize>>,
    pub(crate) document: Option<LayoutDocument>,
}

/// Translates the tensors into the layout, and generates its document if the model had another layout. `writes_document` is
/// false if the output is a single file, which has no place for it.
///
/// # Errors
/// When the tensors and their documents are not a model that the layout can represent.
pub(crate) fn translate_layout(
    names: TargetLayout,
    given: Overrides,
    sources: &CheckpointSources,
    tensors: Tensors,
    writes_document: bool,
    notes: &mut NoteCollector<'_>,
) -> Result<TranslatedTensors> {
    let layout = match names {
        TargetLayout::HuggingFace => &HUGGING_FACE,
        TargetLayout::Meta => &META,
    };
    let mut options = model::decoder_options(given, false, sources)?;
    if writes_document {
        options.documents.tokens = token_documents(sources)?;
    }
    let translated = translate(tensors, &options, layout);
    let translated = translated.map_err(|reason| translation_error(reason, sources))?;
    let is_relevant = |note: &DecoderNote| writes_document || !note.is_about_new_document();
    notes.extend(translated.notes.into_iter().filter(is_relevant).map(Note::LayoutTranslation));
    Ok(TranslatedTensors {
        tensors: translated.tensors,
        origins: translated.origins,
        document: translated.document,
    })
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

pub(crate) fn translation_error(reason: decoder::Error, sources: &CheckpointSources) -> Error {
    if let Some(error) = model::lone_shard(&reason, sources) {
        return error;
    }
    if let decoder::Error::Read { tensor, reason } = reason {
        return Error::from_read_error(reason, |reason| Error::ReadTensor { name: tensor, reason });
    }
    let document = reason.document().map(|file| sources.path.with_file_name(file));
    let path = document.unwrap_or_else(|| sources.root().to_owned());
    Error::LayoutTranslation { path, reason: Box::new(reason) }
}
