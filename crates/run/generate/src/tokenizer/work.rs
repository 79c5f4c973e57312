//! Bounds on the work of a tokenizer: its components and their texts when the file is read, and the pieces of a text before
//! the model of the tokenizer gets them.
//!
//! Facts: the models of `tokenizers` 0.23. `WordPiece` tries each part of a piece, `Unigram` each token at each byte, and
//! `BPE` copies its prefix and suffix for each character. Each component of a list reads the whole text, and compiles its
//! regular expression when the file is read.

use serde_json::{Map, Value};
use tokenizers::OffsetReferential;
use tokenizers::tokenizer::{ModelWrapper, OffsetType, PreTokenizedString};

use crate::{Error, Result};

/// Maximum number of components of a normalizer, pre-tokenizer, post-processor or decoder. Real tokenizers have up to ten.
const COMPONENTS_MAX: u64 = 64;
/// Maximum length of a text in a component, such as the one that `Prepend` adds, in bytes.
const COMPONENT_TEXT_MAX: usize = 256;
/// Maximum length of a regular expression, in bytes. The longest real ones have three hundred.
const PATTERN_MAX: usize = 2048;
/// Maximum number of times that a component of the normalizer runs over an added token.
const ADDED_MAX: u64 = 1 << 19;
/// Steps of the model for any text, and steps more for each byte of it. A step takes about 60 ns.
const STEPS_BASE: u64 = 1 << 24;
const STEPS_PER_BYTE: u64 = 1024;
/// Bytes that are hashed or copied in a step.
const BYTES_PER_STEP: u64 = 16;

/// Sizes in a tokenizer's file that determine the work of its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ModelWork {
    /// Length of the longest token of the model, in bytes.
    longest: u64,
    /// Length of the texts that the model puts around its pieces, in bytes.
    affixes: u64,
    /// Maximum number of characters in a piece that `WordPiece` takes apart.
    characters: u64,
}

impl ModelWork {
    /// Returns the sizes of a model whose longest token has `longest` bytes.
    pub(super) fn new(file: &str, longest: usize, affixes: &[&str], characters: Option<u64>) -> Result<Self> {
        for text in affixes {
            check_length(file, "model", "text", text.len(), COMPONENT_TEXT_MAX)?;
        }
        let affixes = affixes.iter().fold(0_u64, |sum, text| sum.saturating_add(text.len() as u64));
        Ok(Self { longest: longest as u64, affixes, characters: characters.unwrap_or(DEFAULT_CHARACTERS) })
    }

    /// Checks the work of the model for the pieces of a text of `bytes`: their lengths determine the number of steps.
    pub(super) fn check(
        &self,
        file: &str,
        model: &ModelWrapper,
        pieces: &PreTokenizedString,
        bytes: usize,
    ) -> Result<()> {
        let limit = STEPS_BASE.saturating_add(STEPS_PER_BYTE.saturating_mul(bytes as u64));
        let mut steps = 0_u64;
        for (piece, _, tokens) in pieces.get_splits(OffsetReferential::Normalized, OffsetType::None) {
            if tokens.is_none() {
                steps = steps.saturating_add(self.steps(model, piece));
            }
        }
        if steps <= limit {
            return Ok(());
        }
        let part = model_name(model);
        Err(Error::TokenizerWork { file: file.to_owned(), part, what: "steps", found: steps, limit })
    }

    /// Returns an upper bound on the steps of the model for a piece.
    fn steps(&self, model: &ModelWrapper, piece: &str) -> u64 {
        let bytes = piece.len() as u64;
        match model {
            ModelWrapper::WordPiece(_) => {
                // A longer piece is one unknown token.
                let characters = piece.chars().count() as u64;
                let attempts =
                    if characters > self.characters { 0 } else { characters.saturating_mul(characters) / 2 };
                let hashed = bytes.saturating_add(self.affixes) / BYTES_PER_STEP;
                attempts.saturating_mul(hashed.saturating_add(1)).saturating_add(bytes)
            }
            ModelWrapper::Unigram(_) => bytes.saturating_mul(self.longest.min(bytes).max(1)),
            ModelWrapper::BPE(_) => {
                bytes.saturating_mul((self.affixes / BYTES_PER_STEP).saturating_add(BPE_STEPS))
            }
            ModelWrapper::WordLevel(_) => bytes,
        }
    }
}

/// `max_input_chars_per_word` of a `WordPiece` that does not give it.
const DEFAULT_CHARACTERS: u64 = 100;
/// Steps of `BPE` for each byte: a heap of pairs.
const BPE_STEPS: u64 = 8;

fn model_name(model: &ModelWrapper) -> &'static str {
    match model {
        ModelWrapper::WordPiece(_) => "model `WordPiece`",
        ModelWrapper::Unigram(_) => "model `Unigram`",
        ModelWrapper::BPE(_) => "model `BPE`",
        ModelWrapper::WordLevel(_) => "model `WordLevel`",
    }
}

/// Checks the number of components in a part of the file, and the texts and patterns in them. Returns their number.
pub(super) fn check_components(file: &str, part: &'static str, root: &Value) -> Result<u64> {
    let mut count = 0_u64;
    let mut open = vec![root];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(object) => {
                count = count.saturating_add(u64::from(object.contains_key("type")));
                check_texts(file, part, object)?;
                open.extend(object.values());
            }
            _ => {}
        }
    }
    if count > COMPONENTS_MAX {
        let file = file.to_owned();
        return Err(Error::TokenizerWork {
            file,
            part,
            what: "components",
            found: count,
            limit: COMPONENTS_MAX,
        });
    }
    Ok(count)
}

/// Checks the lengths of the texts and the pattern of a component.
fn check_texts(file: &str, part: &'static str, object: &Map<String, Value>) -> Result<()> {
    for (key, value) in object {
        let Some(text) = value.as_str() else { continue };
        match key.as_str() {
            // A table of characters in base64.
            "precompiled_charsmap" => {}
            "Regex" | "String" => check_length(file, part, "pattern", text.len(), PATTERN_MAX)?,
            _ => check_length(file, part, "text", text.len(), COMPONENT_TEXT_MAX)?,
        }
    }
    Ok(())
}

fn check_length(
    file: &str,
    part: &'static str,
    what: &'static str,
    found: usize,
    limit: usize,
) -> Result<()> {
    if found <= limit {
        return Ok(());
    }
    Err(Error::LongComponent { file: file.to_owned(), part, what, found, limit })
}

/// Checks the work of normalizing the added tokens, which happens when the file is read.
pub(super) fn check_added(file: &str, added: usize, normalizers: u64) -> Result<()> {
    let found = (added as u64).saturating_mul(normalizers);
    if found <= ADDED_MAX {
        return Ok(());
    }
    let file = file.to_owned();
    Err(Error::TokenizerWork { file, part: "added tokens", what: "normalizers", found, limit: ADDED_MAX })
}
