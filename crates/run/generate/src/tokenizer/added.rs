//! Tokens that are added to those of a `SentencePiece` model.
//!
//! Facts: `added_tokens_decoder` of `tokenizer_config.json`, and `added_tokens.json` of older files. White space next to a token that
//! strips it belongs to the token.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;

use crate::{Error, Result};

/// Most bytes of the texts of all added tokens. The search for them takes some hundred times as much.
const BYTES_MAX: usize = 1 << 20;

/// Token that is found in a text before the model sees it.
#[derive(Clone, Debug)]
pub(super) struct AddedToken {
    pub(super) id: u32,
    pub(super) text: String,
    pub(super) is_special: bool,
    strips: [bool; 2],
}

impl AddedToken {
    /// Creates a token that is special.
    pub(super) fn special(id: u32, text: String) -> Self {
        Self { id, text, is_special: true, strips: [false; 2] }
    }

    /// Reads the tokens of `tokenizer_config.json`.
    pub(super) fn of_config(config: &Value) -> Vec<Self> {
        let rows = config.get("added_tokens_decoder").and_then(Value::as_object);
        let token = |(id, row): (&String, &Value)| {
            let is_set = |key: &str| row.get(key).and_then(Value::as_bool).unwrap_or_default();
            Some(Self {
                id: id.parse().ok()?,
                text: row.get("content")?.as_str()?.to_owned(),
                is_special: is_set("special"),
                strips: [is_set("lstrip"), is_set("rstrip")],
            })
        };
        rows.into_iter().flatten().filter_map(token).collect()
    }

    /// Reads the tokens of `added_tokens.json`.
    pub(super) fn of_names(names: &Value) -> Vec<Self> {
        let token = |(text, id): (&String, &Value)| {
            Some(Self::special(u32::try_from(id.as_u64()?).ok()?, text.clone()))
        };
        names.as_object().into_iter().flatten().filter_map(token).collect()
    }
}

/// Finds added tokens in texts.
#[derive(Debug)]
pub(super) struct AddedTokens {
    finder: AhoCorasick,
    tokens: Vec<AddedToken>,
    /// Places of the tokens by their ids.
    places: HashMap<u32, usize>,
}

/// A part of a text.
pub(super) enum TextPart<'t> {
    Text(&'t str),
    Token(u32),
}

impl AddedTokens {
    /// # Errors
    /// When the texts of the tokens are too long.
    pub(super) fn new(file: &str, mut tokens: Vec<AddedToken>) -> Result<Self> {
        tokens.retain(|token| !token.text.is_empty());
        let invalid = |reason: String| Error::Invalid { file: file.to_owned(), reason };
        let bytes = tokens.iter().fold(0_usize, |sum, token| sum.saturating_add(token.text.len()));
        if bytes > BYTES_MAX {
            return Err(invalid(format!(
                "its added tokens have {bytes} bytes, at most {BYTES_MAX} are used"
            )));
        }
        let texts = tokens.iter().map(|token| token.text.as_str());
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts);
        let finder = finder.map_err(|error| invalid(error.to_string()))?;
        let places = tokens.iter().enumerate().map(|(place, token)| (token.id, place)).collect();
        Ok(Self { finder, tokens, places })
    }

    pub(super) fn get(&self, id: u32) -> Option<&AddedToken> {
        self.tokens.get(*self.places.get(&id)?)
    }

    /// Returns the id of a token.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.tokens.iter().find(|token| token.text == text).map(|token| token.id)
    }

    /// Divides a text into its added tokens and what is between them.
    pub(super) fn split<'t>(&self, text: &'t str) -> Vec<TextPart<'t>> {
        let (mut parts, mut end) = (Vec::new(), 0_usize);
        for found in self.finder.find_iter(text) {
            let Some(token) = self.tokens.get(found.pattern().as_usize()) else { continue };
            let [strips_before, strips_after] = token.strips;
            let before = text.get(end..found.start()).unwrap_or_default();
            let before = if strips_before { before.trim_end() } else { before };
            if !before.is_empty() {
                parts.push(TextPart::Text(before));
            }
            parts.push(TextPart::Token(token.id));
            end = found.end();
            if strips_after {
                let rest = text.get(end..).unwrap_or_default();
                end = text.len().saturating_sub(rest.trim_start().len());
            }
        }
        match text.get(end..) {
            Some(rest) if !rest.is_empty() => parts.push(TextPart::Text(rest)),
            _ => {}
        }
        parts
    }
}
