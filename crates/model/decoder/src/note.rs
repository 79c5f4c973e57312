//! Notes about a decoder that was read without an error.

use std::fmt;

use crate::error::list_names;

/// A note about a decoder that was read without an error; its text is one sentence.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum DecoderNote {
    /// Keys of a document that are unknown or do not affect the model.
    UnusedKeys {
        file: &'static str,
        /// Names of the keys, at least one.
        keys: Vec<String>,
    },
    /// The output matrix has no tensor, so the embeddings take its place.
    TiedOutput {
        /// Name of the missing tensor.
        name: String,
    },
    /// Tensors that the model does not use are kept.
    ExtraTensors {
        /// Names of the tensors, at least one.
        names: Vec<String>,
    },
    /// Tensors that the logits of text do not depend on are left out, such as the tower of pictures.
    PartsLeftOut {
        count: usize,
        /// Names of the modules with these tensors, at least one.
        parts: Vec<String>,
    },
    /// Rotary embeddings are scaled as in Llama 3.1 and 3.2.
    ScaledPositions {
        /// Factor of the longest wavelengths.
        factor: f64,
    },
    /// The model already has the requested layout.
    SameLayout {
        /// Organisation that defines the layout, such as Meta.
        owner: &'static str,
    },
    /// The rows that pad the vocabulary in a trainer's checkpoint are left out.
    VocabularyCut {
        tensor: String,
        /// Number of rows of the tensor.
        found: u64,
        /// Number of rows that are kept, which config.json states.
        kept: u64,
    },
    /// Rotary frequency tensors are left out, because every forward computes them.
    Frequencies {
        /// Names of the tensors, at least one.
        names: Vec<String>,
        /// True if the tensors equal the computed frequencies bit for bit; false if some differ in the last place.
        exact: bool,
    },
    /// Rotary frequency tensors are restored, as config.json records.
    FrequenciesRestored {
        /// Names of the tensors, at least one.
        names: Vec<String>,
    },
    /// A generated document needs a value that no document states, so Meta's value is assumed.
    AssumedValue { file: &'static str, key: &'static str, value: u64 },
    /// A generated document states the size of a head, which Meta's code ignores and computes.
    HeadSize { file: &'static str, head_dim: u64 },
    /// A generated config.json has no ids of the first and the last token, because no document states them.
    UnknownTokenIds {
        file: &'static str,
        /// Keys that are `null`, at least one.
        keys: Vec<&'static str>,
    },
    /// The checkpoint has the tensor names of a LLaMA, but the facts that a LLaMA needs are missing.
    LlamaNames,
}

impl DecoderNote {
    /// Returns true for a note about a document that is generated next to the tensors.
    pub fn is_about_new_document(&self) -> bool {
        matches!(self, Self::AssumedValue { .. } | Self::HeadSize { .. } | Self::UnknownTokenIds { .. })
    }
}

impl fmt::Display for DecoderNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnusedKeys { file, keys } => {
                let verb = if keys.len() == 1 { "is" } else { "are" };
                let keys: Vec<String> = keys.iter().map(|key| format!("`{}`", key.escape_debug())).collect();
                write!(f, "{file}: {} {verb} not used", keys.join(", "))
            }
            Self::TiedOutput { name } => {
                write!(f, "there is no `{name}`: the embeddings are used as the output matrix")
            }
            Self::ExtraTensors { names } => {
                let (count, s, verb) =
                    if names.len() == 1 { (1, "", "is") } else { (names.len(), "s", "are") };
                write!(f, "{count} tensor{s} that the model does not use {verb} kept: {}", list_names(names))
            }
            Self::PartsLeftOut { count, parts } => {
                let (s, verb) = if *count == 1 { ("", "is") } else { ("s", "are") };
                let parts = list_names(parts);
                write!(f, "{count} tensor{s} {verb} left out, which logits of text do not depend on: {parts}")
            }
            Self::ScaledPositions { factor } => {
                write!(f, "positions are scaled by {factor}, as in Llama 3.1 and 3.2")
            }
            Self::SameLayout { owner } => write!(f, "the tensors have {owner}'s names already"),
            Self::VocabularyCut { tensor, found, kept } => {
                write!(
                    f,
                    "`{}`: {kept} of {found} rows are kept, as config.json says; the others are padding",
                    tensor.escape_debug()
                )
            }
            Self::Frequencies { names, exact } => {
                let places = if *exact { "" } else { ", up to the last place" };
                let (verb, they) = if names.len() == 1 { ("is", "it has") } else { ("are", "they have") };
                write!(f, "{} {verb} left out: {they} what the model computes{places}", list_names(names))
            }
            Self::FrequenciesRestored { names } => {
                let verb = if names.len() == 1 { "is" } else { "are" };
                write!(f, "{} {verb} made again, as config.json records", list_names(names))
            }
            Self::AssumedValue { file, key, value } => {
                write!(f, "{file}: `{key}` is {value}, as in Meta's models; no document states it")
            }
            Self::HeadSize { file, head_dim } => {
                write!(f, "{file}: `head_dim` is {head_dim}, which Meta's code does not read")
            }
            Self::UnknownTokenIds { file, keys } => {
                let (verb, them) = if keys.len() == 1 { ("is", "it") } else { ("are", "them") };
                write!(f, "{file}: `{}` {verb} null; no document states {them}", keys.join("` and `"))
            }
            Self::LlamaNames => f.write_str("the tensors have the names of a LLaMA"),
        }
    }
}
