//! The parts of a tokenizer.json that a file of llama.cpp has.

use std::fmt;

use byte_source::Result;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::damaged;

/// A tokenizer.json.
#[derive(Debug, Deserialize)]
pub(crate) struct TokenizerJson {
    #[serde(default)]
    pub(crate) added_tokens: Vec<AddedToken>,
    pub(crate) normalizer: Option<Value>,
    pub(crate) pre_tokenizer: Option<Value>,
    pub(crate) post_processor: Option<Value>,
    pub(crate) decoder: Option<Value>,
    pub(crate) model: TokenModel,
}

#[derive(Debug, Deserialize)]
pub(crate) struct AddedToken {
    pub(crate) id: u64,
    pub(crate) content: String,
    #[serde(default)]
    pub(crate) special: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct TokenModel {
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) byte_fallback: bool,
    pub(crate) vocab: Vocabulary,
    #[serde(default)]
    pub(crate) merges: Merges,
}

/// Tokens with their ids, in the order of the file.
#[derive(Debug, Default)]
pub(crate) struct Vocabulary(pub(crate) Vec<(String, u64)>);

/// Merges, each as a text with one space.
#[derive(Debug, Default)]
pub(crate) struct Merges(pub(crate) Vec<String>);

impl TokenizerJson {
    /// Reads a tokenizer.json.
    ///
    /// # Errors
    /// When it has another form.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|error| damaged("tokenizer.json", error))
    }

    /// Returns true for what was a `SentencePiece` model: tokens that other texts are merged to, else those of their bytes.
    pub(crate) fn falls_back_to_bytes(&self) -> bool {
        let decoder = self.decoder.as_ref().and_then(|decoder| decoder.get("type")?.as_str());
        self.model.kind == "BPE" && self.model.byte_fallback && decoder == Some("Sequence")
    }
}

impl<'de> Deserialize<'de> for Vocabulary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tokens;

        impl<'de> Visitor<'de> for Tokens {
            type Value = Vocabulary;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tokens with their ids, or a list of tokens with their scores")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocabulary, A::Error> {
                let mut tokens = Vec::new();
                while let Some(token) = map.next_entry()? {
                    tokens.push(token);
                }
                Ok(Vocabulary(tokens))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vocabulary, A::Error> {
                let mut tokens = Vec::new();
                while let Some((token, _)) = seq.next_element::<(String, IgnoredAny)>()? {
                    let id = tokens.len() as u64;
                    tokens.push((token, id));
                }
                Ok(Vocabulary(tokens))
            }
        }

        deserializer.deserialize_any(Tokens)
    }
}

impl<'de> Deserialize<'de> for Merges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Merge {
            Text(String),
            Pair(String, String),
        }

        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = Merges;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of merges")
            }

            fn visit_unit<E>(self) -> Result<Merges, E> {
                Ok(Merges::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Merges, A::Error> {
                let mut merges = Vec::new();
                while let Some(merge) = seq.next_element()? {
                    merges.push(match merge {
                        Merge::Text(text) => text,
                        Merge::Pair(left, right) => format!("{} {}", visible(left), visible(right)),
                    });
                }
                Ok(Merges(merges))
            }
        }

        deserializer.deserialize_any(List)
    }
}

/// Writes spaces as byte-level tokens have them.
fn visible(part: String) -> String {
    if part.contains(' ') { part.replace(' ', "\u{120}") } else { part }
}
