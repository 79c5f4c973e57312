//! The layout of a language model, Meta's or Hugging Face's, that its tensors and documents get.

use checkpoint_files::Sources;
use decoder::{Document, Given, HUGGING_FACE, META, translate};
use tensor::Tensors;

use crate::notes::Notes;
use crate::{Error, Note, Result, model};

/// Whose names and documents a language model gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Those of Hugging Face's `transformers`, with a `config.json`.
    HuggingFace,
    /// Those of Meta's code, with a `params.json`.
    Meta,
}

impl Names {
    /// The documents of the other layout, which would contradict the new one.
    pub(crate) fn replaced_documents(self) -> &'static [&'static str] {
        match self {
            Self::HuggingFace => &["params.json"],
            Self::Meta => &["config.json", "generation_config.json"],
        }
    }
}

/// The tensors of a model, and the document of its layout if that is a new one.
pub(crate) struct Named {
    pub(crate) tensors: Tensors,
    pub(crate) document: Option<Document>,
}

/// The tensors in the layout, and its document if the model had another layout before.
///
/// # Errors
/// When the tensors and their documents are not a model that the layout has.
pub(crate) fn apply(
    names: Names,
    given: Given,
    sources: &Sources,
    tensors: Tensors,
    notes: &mut Notes<'_>,
) -> Result<Named> {
    let layout = match names {
        Names::HuggingFace => &HUGGING_FACE,
        Names::Meta => &META,
    };
    let translated = translate(tensors, &model::decoder_options(given, false, sources)?, layout);
    let translated = translated.map_err(|reason| error(reason, sources))?;
    notes.extend(translated.notes.into_iter().map(Note::Names));
    Ok(Named { tensors: translated.tensors, document: translated.document })
}

fn error(reason: decoder::Error, sources: &Sources) -> Error {
    if let Some(error) = model::lone_shard(&reason, sources) {
        return error;
    }
    if let decoder::Error::Read { tensor, reason } = reason {
        return Error::of_read(reason, |reason| Error::ReadTensor { name: tensor, reason });
    }
    let document = reason.document().map(|file| sources.path.with_file_name(file));
    let path = document.unwrap_or_else(|| sources.root().to_owned());
    Error::Names { path, reason: Box::new(reason) }
}
