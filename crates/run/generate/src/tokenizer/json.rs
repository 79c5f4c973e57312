//! Tokenizers of the crate `tokenizers`: `tokenizer.json`, and Llama 3's `tokenizer.model`.

use tokenizers::tokenizer::{Model as _, Tokenizer as HuggingFace};
use tokenizers::{NormalizedString, Normalizer as _, OffsetType};

use super::guard::{as_file_error, catch_panics};
use super::limits::ExpansionLimits;
use super::pattern::Patterns;
use super::tiktoken::{self, Rank, TiktokenFile};
use crate::{Error, Result};

pub(super) struct JsonTokenizer {
    pub(super) inner: HuggingFace,
    file: String,
    limits: ExpansionLimits,
    patterns: Patterns,
    /// True if characters of tokens stand for bytes.
    pub(super) is_byte_level: bool,
}

impl std::fmt::Debug for JsonTokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JsonTokenizer").field("file", &self.file).finish_non_exhaustive()
    }
}

impl JsonTokenizer {
    /// Reads a file, which is Llama 3's or `tokenizer.json`, and returns the stop tokens that it defines.
    ///
    /// # Errors
    /// Returns an error if the file is damaged, or could expand a short text until it fills the memory.
    pub(super) fn read(name: &str, bytes: &[u8], is_tiktoken: bool) -> Result<(Self, Vec<u32>)> {
        let (inner, limits, stops) = if is_tiktoken {
            let TiktokenFile { tokenizer, stops, longest } = tiktoken::read(name, bytes)?;
            (tokenizer, ExpansionLimits::from_tiktoken(name, longest)?, stops)
        } else {
            let limits = ExpansionLimits::from_json(name, bytes)?;
            // `from_bytes` is generic and would compile the whole deserializer a second time, in this crate.
            let mut inner: HuggingFace = catch_panics(name, || std::str::from_utf8(bytes)?.parse())
                .map_err(|error| as_file_error(name, error))?;
            // A model takes one text of any length, so there is nothing to truncate or pad, and a file can request
            // padding to any length.
            inner.with_padding(None);
            catch_panics(name, || inner.with_truncation(None).map(drop))?;
            if catch_panics(name, || strips_itself(&inner))? {
                let reason = "an added token is white space, and strips white space around itself";
                return Err(Error::Unsupported { file: name.to_owned(), reason });
            }
            (inner, limits, Vec::new())
        };
        Ok((Self::new(name, inner, limits)?, stops))
    }

    /// Creates the tokenizer of ranks, without special tokens.
    ///
    /// # Errors
    /// Returns an error if the pattern is not understood, or takes too much work.
    pub(super) fn of_ranks(file: &str, ranks: &[Rank], pattern: &str, offset: u32) -> Result<Self> {
        let inner = tiktoken::tokenizer_of_ranks(file, ranks, pattern, offset)?;
        let limits = ExpansionLimits::from_tiktoken(file, tiktoken::longest(ranks))?;
        Self::new(file, inner, limits)
    }

    fn new(file: &str, inner: HuggingFace, limits: ExpansionLimits) -> Result<Self> {
        let patterns = Patterns::of(file, &inner)?;
        let decoder = serde_json::to_string(&inner.get_decoder()).unwrap_or_default();
        let is_byte_level = decoder.contains("\"ByteLevel\"");
        Ok(Self { inner, file: file.to_owned(), limits, patterns, is_byte_level })
    }

    /// Returns the `tokenizer.json`.
    ///
    /// # Errors
    /// Returns an error if the crate fails.
    pub(super) fn to_json(&self) -> Result<String> {
        catch_panics(&self.file, || self.inner.to_string(false))
    }

    /// Encodes `text`, with the tokens that the tokenizer adds or without them.
    ///
    /// # Errors
    /// Returns an error if the tokenizer fails, or if the text is too long for it.
    pub(super) fn encode(&self, text: &str, adds_special: bool) -> Result<Vec<u32>> {
        self.limits.check_text(&self.file, text)?;
        let mut pieces = catch_panics(&self.file, || self.patterns.split(&self.inner, text))??;
        self.limits.work.check(&self.file, self.inner.get_model(), &pieces, text.len())?;
        // The rest of `encode_fast`, which would make the pieces once more.
        let encoding = catch_panics(&self.file, || {
            self.inner.get_model().tokenize_in_pretokenized(&mut pieces, None)?;
            self.inner.post_process(pieces.into_encoding(None, 0, OffsetType::None)?, None, adds_special)
        })?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Decodes `tokens`. The steps of regular expressions are counted if there are any.
    ///
    /// # Errors
    /// Returns an error if the tokenizer fails, or if the tokens are too many for it.
    pub(super) fn decode(&self, tokens: &[u32], skips_special: bool) -> Result<String> {
        self.limits.check_tokens(&self.file, tokens.len())?;
        if !self.patterns.counts_decoding() {
            return catch_panics(&self.file, || self.inner.decode(tokens, skips_special));
        }
        let added = self.inner.get_added_vocabulary();
        let texts = tokens.iter().filter_map(|token| self.inner.id_to_token(*token));
        let texts = texts.filter(|text| !skips_special || !added.is_special_token(text)).collect();
        catch_panics(&self.file, || self.patterns.decode(&self.inner, texts))?
    }

    pub(super) fn is_special(&self, token: u32) -> bool {
        let added = self.inner.get_added_vocabulary();
        self.inner.id_to_token(token).is_some_and(|text| added.is_special_token(&text))
    }

    pub(super) fn needs_next_token(&self, token: u32) -> bool {
        let Some(text) = self.inner.id_to_token(token) else { return true };
        let is_byte = text.len() == 6 && text.starts_with("<0x") && text.ends_with('>');
        (self.limits.joins_bytes && is_byte) || self.is_special(token)
    }
}

/// Returns true if an added token, as it is searched for, is white space and strips white space.
///
/// Facts: for each such token in a run of white space, `tokenizers` 0.23 copies the rest of the run.
fn strips_itself(tokenizer: &HuggingFace) -> tokenizers::Result<bool> {
    for token in tokenizer.get_added_tokens_decoder().values().filter(|token| token.lstrip || token.rstrip) {
        let mut text = NormalizedString::from(token.content.as_str());
        if token.normalized
            && let Some(normalizer) = tokenizer.get_normalizer()
        {
            normalizer.normalize(&mut text)?;
        }
        if text.get().chars().all(char::is_whitespace) {
            return Ok(true);
        }
    }
    Ok(false)
}
