//! Bounds on the work of the regular expressions of a tokenizer.
//!
//! Facts: `fancy-regex` searches anew after each match, so a pattern that looks ahead to the end of the text takes quadratic
//! time, and its limit of a million attempts holds for each search. Beyond that limit `tokenizers` 0.23 leaves the rest of
//! the text in one piece, without an error. So before a component searches a text, a machine that counts its steps does,
//! and a text that needs too many is an error.

mod class;
mod matcher;
mod program;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::tokenizer::{Decoder as _, PreTokenizer as _, Tokenizer as HuggingFace};
use tokenizers::{
    DecoderWrapper, NormalizedString, Normalizer, OffsetReferential, OffsetType, PreTokenizedString,
};

use crate::{Error, Result};
use matcher::{Exhausted, Steps};
use program::Program;

/// Steps for any text, and more for each byte of it. Real tokenizers need up to fifty for a byte of text.
const STEPS_BASE: u64 = 1 << 24;
const STEPS_PER_BYTE: u64 = 256;
/// Maximum number of parts of all patterns of a tokenizer. Those of real ones have two hundred.
const PARTS_MAX: usize = 1024;
/// The pattern of the component `ByteLevel`.
const BYTE_LEVEL: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The regular expressions of a tokenizer, for each of its components in their order.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    file: String,
    normalizer: Vec<Option<Program>>,
    pre_tokenizer: Vec<Option<Program>>,
    decoder: Vec<Option<Program>>,
}

impl Patterns {
    /// Compiles the patterns of the components of a tokenizer's file, before the file is read by `tokenizers`.
    pub(super) fn check(file: &str, components: &[(&'static str, &Value)]) -> Result<()> {
        let mut known: HashMap<&str, usize> = HashMap::new();
        let mut total = 0_usize;
        for (part, root) in components {
            let mut open = vec![*root];
            while let Some(value) = open.pop() {
                match value {
                    Value::Array(items) => open.extend(items),
                    Value::Object(object) => {
                        if let Some(pattern) = object.get("Regex").and_then(Value::as_str) {
                            let parts = match known.get(pattern) {
                                Some(parts) => *parts,
                                None => compile(file, part, pattern)?.parts,
                            };
                            known.insert(pattern, parts);
                            total = total.saturating_add(parts);
                            if total > PARTS_MAX {
                                let reason = format!(
                                    "its patterns have {total} parts together, expected at most {PARTS_MAX}"
                                );
                                return Err(Error::Pattern { file: file.to_owned(), part, reason });
                            }
                        }
                        open.extend(object.values());
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    pub(super) fn of(file: &str, tokenizer: &HuggingFace) -> Result<Self> {
        let mut patterns = Self { file: file.to_owned(), ..Self::default() };
        patterns.normalizer =
            normalizer_patterns(file, &tokenizer.get_normalizer().map(normalizers).unwrap_or_default())?;
        for component in tokenizer.get_pre_tokenizer().map(pre_tokenizers).unwrap_or_default() {
            let pattern = match component {
                PreTokenizerWrapper::Split(split) => regex_of(split),
                PreTokenizerWrapper::ByteLevel(bytes) if bytes.use_regex => Some(BYTE_LEVEL.to_owned()),
                _ => None,
            };
            patterns.pre_tokenizer.push(compile_some(file, "pre_tokenizer", pattern.as_deref())?);
        }
        for component in tokenizer.get_decoder().map(decoders).unwrap_or_default() {
            let pattern = match component {
                DecoderWrapper::Replace(replace) => regex_of(replace),
                _ => None,
            };
            patterns.decoder.push(compile_some(file, "decoder", pattern.as_deref())?);
        }
        Ok(patterns)
    }

    pub(super) fn split(
        &self,
        tokenizer: &HuggingFace,
        text: &str,
    ) -> tokenizers::Result<Result<PreTokenizedString>> {
        let limit = limit_of(text.len());
        let counted = CountedNormalizer {
            components: tokenizer.get_normalizer().map(normalizers).unwrap_or_default(),
            patterns: &self.normalizer,
            left: Mutex::new(Ok(Steps(limit))),
        };
        let normalizer = tokenizer.get_normalizer().map(|_| &counted);
        let mut pieces = tokenizer.get_added_vocabulary().extract_and_normalize(normalizer, text);
        let Ok(mut steps) = counted.into_left() else { return Ok(Err(self.exhausted("normalizer", limit))) };
        let components = tokenizer.get_pre_tokenizer().map(pre_tokenizers).unwrap_or_default();
        for (at, component) in components.into_iter().enumerate() {
            if let Some(Some(program)) = self.pre_tokenizer.get(at) {
                for (piece, _, tokens) in pieces.get_splits(OffsetReferential::Normalized, OffsetType::None) {
                    let is_open = tokens.is_none();
                    if is_open && matcher::find_all(program, piece, &mut steps, |_, _| ()).is_err() {
                        return Ok(Err(self.exhausted("pre_tokenizer", limit)));
                    }
                }
            }
            component.pre_tokenize(&mut pieces)?;
        }
        Ok(Ok(pieces))
    }

    /// Returns true if the decoder searches with a regular expression.
    pub(super) fn counts_decoding(&self) -> bool {
        self.decoder.iter().any(Option::is_some)
    }

    pub(super) fn decode(
        &self,
        tokenizer: &HuggingFace,
        mut texts: Vec<String>,
    ) -> tokenizers::Result<Result<String>> {
        let limit = limit_of(texts.iter().fold(0, |sum: usize, text| sum.saturating_add(text.len())));
        let mut steps = Steps(limit);
        for (at, component) in
            tokenizer.get_decoder().map(decoders).unwrap_or_default().into_iter().enumerate()
        {
            if let Some(Some(program)) = self.decoder.get(at)
                && texts.iter().any(|text| matcher::find_all(program, text, &mut steps, |_, _| ()).is_err())
            {
                return Ok(Err(self.exhausted("decoder", limit)));
            }
            texts = component.decode_chain(texts)?;
        }
        Ok(Ok(texts.concat()))
    }

    fn exhausted(&self, part: &'static str, limit: u64) -> Error {
        Error::PatternWork { file: self.file.clone(), part, limit }
    }
}

/// Checks the work of normalizing the added tokens, which happens when the file is read. `normalizer` is that of the file.
pub(super) fn check_added<'t>(
    file: &str,
    normalizer: &Value,
    added: impl Iterator<Item = &'t str>,
) -> tokenizers::Result<Result<()>> {
    if normalizer.is_null() || !normalizer.to_string().contains("\"Regex\"") {
        return Ok(Ok(()));
    }
    let normalizer: NormalizerWrapper = serde_json::from_value(normalizer.clone())?;
    let components = normalizers(&normalizer);
    let patterns = match normalizer_patterns(file, &components) {
        Ok(patterns) => patterns,
        Err(error) => return Ok(Err(error)),
    };
    let mut counted =
        CountedNormalizer { components, patterns: &patterns, left: Mutex::new(Ok(Steps(STEPS_BASE))) };
    for token in added {
        counted.normalize(&mut NormalizedString::from(token))?;
        let Ok(steps) = counted.left.get_mut().unwrap_or_else(PoisonError::into_inner) else {
            return Ok(Err(Error::PatternWork {
                file: file.to_owned(),
                part: "normalizer",
                limit: STEPS_BASE,
            }));
        };
        steps.0 = steps.0.saturating_add(STEPS_PER_BYTE.saturating_mul(token.len() as u64));
    }
    Ok(Ok(()))
}

/// A normalizer whose patterns are counted before they are searched for. When they need too many steps, it does nothing more.
struct CountedNormalizer<'a> {
    components: Vec<&'a NormalizerWrapper>,
    patterns: &'a [Option<Program>],
    left: Mutex<std::result::Result<Steps, Exhausted>>,
}

impl CountedNormalizer<'_> {
    fn into_left(self) -> std::result::Result<Steps, Exhausted> {
        self.left.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Normalizer for CountedNormalizer<'_> {
    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        // The trait needs a type that threads can share.
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        for (at, component) in self.components.iter().enumerate() {
            let Ok(steps) = &mut *left else { return Ok(()) };
            if let Some(Some(program)) = self.patterns.get(at)
                && let Err(exhausted) = matcher::find_all(program, text.get(), steps, |_, _| ())
            {
                *left = Err(exhausted);
                return Ok(());
            }
            component.normalize(text)?;
        }
        Ok(())
    }
}

fn limit_of(bytes: usize) -> u64 {
    STEPS_BASE.saturating_add(STEPS_PER_BYTE.saturating_mul(bytes as u64))
}

fn normalizer_patterns(file: &str, components: &[&NormalizerWrapper]) -> Result<Vec<Option<Program>>> {
    let compile = |component: &&NormalizerWrapper| {
        let pattern = match component {
            NormalizerWrapper::Replace(replace) => regex_of(replace),
            _ => None,
        };
        compile_some(file, "normalizer", pattern.as_deref())
    };
    components.iter().map(compile).collect()
}

fn compile_some(file: &str, part: &'static str, pattern: Option<&str>) -> Result<Option<Program>> {
    pattern.map(|pattern| compile(file, part, pattern)).transpose()
}

fn compile(file: &str, part: &'static str, pattern: &str) -> Result<Program> {
    Program::new(pattern).map_err(|reason| Error::Pattern { file: file.to_owned(), part, reason })
}

/// Returns the regular expression of a component; some keep it in a private field.
fn regex_of(component: &impl serde::Serialize) -> Option<String> {
    let value = serde_json::to_value(component).ok()?;
    value.get("pattern")?.get("Regex")?.as_str().map(str::to_owned)
}

/// Returns the components of a normalizer, without the lists that contain them.
fn normalizers(root: &NormalizerWrapper) -> Vec<&NormalizerWrapper> {
    leaves(root, |component| match component {
        NormalizerWrapper::Sequence(list) => Some(list.as_ref()),
        _ => None,
    })
}

fn pre_tokenizers(root: &PreTokenizerWrapper) -> Vec<&PreTokenizerWrapper> {
    leaves(root, |component| match component {
        PreTokenizerWrapper::Sequence(list) => Some(list.as_ref()),
        _ => None,
    })
}

fn decoders(root: &DecoderWrapper) -> Vec<&DecoderWrapper> {
    leaves(root, |component| match component {
        DecoderWrapper::Sequence(list) => Some(list.get_decoders()),
        _ => None,
    })
}

fn leaves<'a, T>(root: &'a T, list: impl Fn(&'a T) -> Option<&'a [T]>) -> Vec<&'a T> {
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(component) = open.pop() {
        match list(component) {
            Some(children) => open.extend(children.iter().rev()),
            None => found.push(component),
        }
    }
    found
}
