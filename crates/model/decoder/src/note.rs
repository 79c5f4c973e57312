//! What a user should know about a decoder that was read without an error.

use std::fmt;

use crate::error::few;

/// What a user should know about a decoder that was read without an error; its text is one sentence.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Note {
    /// Keys of a document that the model does not depend on, or that are unknown.
    UnusedKeys {
        /// The document.
        file: &'static str,
        /// The keys, at least one.
        keys: Vec<String>,
    },
    /// The output matrix has no tensor: the embeddings are used for it.
    TiedOutput {
        /// The tensor that is missing.
        name: String,
    },
    /// Tensors that the model does not use are kept.
    ExtraTensors {
        /// Their names, at least one.
        names: Vec<String>,
    },
    /// Positions are scaled.
    ScaledPositions {
        /// By this factor.
        factor: f64,
    },
    /// The model has the layout that it should get.
    SameLayout {
        /// Who made the layout.
        owner: &'static str,
    },
    /// Tensors with the frequencies of positions are left out, because every forward computes them.
    Frequencies {
        /// Their names, at least one.
        names: Vec<String>,
        /// Whether they are equal bit for bit to what is computed; otherwise some differ in the last place.
        exact: bool,
    },
    /// Tensors with the frequencies of positions are made again.
    FrequenciesMade {
        /// Their names, at least one.
        names: Vec<String>,
    },
    /// A value that a document needs and that nothing states.
    Assumed {
        /// The document.
        file: &'static str,
        /// The key.
        key: &'static str,
        /// The value.
        value: u64,
    },
    /// The size of a head in a document whose own programs compute it instead.
    HeadSize {
        /// The document.
        file: &'static str,
        /// The size.
        head_dim: u64,
    },
    /// The checkpoint has a LLaMA's tensor names, but nothing says what a LLaMA needs to run.
    NamesOfLlama,
}

impl fmt::Display for Note {
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
                write!(f, "{count} tensor{s} that the model does not use {verb} kept: {}", few(names))
            }
            Self::ScaledPositions { factor } => {
                write!(f, "positions are scaled by {factor}, as in Llama 3.1 and 3.2")
            }
            Self::SameLayout { owner } => write!(f, "the tensors have {owner}'s names already"),
            Self::Frequencies { names, exact } => {
                let places = if *exact { "" } else { ", up to the last place" };
                let (verb, they) = if names.len() == 1 { ("is", "it has") } else { ("are", "they have") };
                write!(f, "{} {verb} left out: {they} what the model computes{places}", few(names))
            }
            Self::FrequenciesMade { names } => {
                let verb = if names.len() == 1 { "is" } else { "are" };
                write!(f, "{} {verb} made again, as config.json records", few(names))
            }
            Self::Assumed { file, key, value } => {
                write!(f, "{file}: `{key}` is {value}, as in Meta's models; no document states it")
            }
            Self::HeadSize { file, head_dim } => {
                write!(f, "{file}: `head_dim` is {head_dim}, which Meta's code does not read")
            }
            Self::NamesOfLlama => f.write_str("the tensors have the names of a LLaMA"),
        }
    }
}
