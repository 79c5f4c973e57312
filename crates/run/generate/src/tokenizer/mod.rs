//! Tokenizers of models: text to tokens, and tokens to text.
//!
//! Facts: `tokenizer.json` is read by Hugging Face's own crate `tokenizers`, with the regular expressions of `fancy-regex`
//! in place of Oniguruma, which is C. `tests/conformance/test_run.py` compares both, character by character.
//!
//! The files are untrusted. `limits.rs` bounds the expansion of a text before a tokenizer is used, `work.rs` bounds the
//! steps of its components and its model, `pattern` those of its regular expressions, and `guard.rs` turns panics of the crate, which some damaged files cause, into errors.

mod guard;
mod limits;
mod pattern;
mod stream;
mod tiktoken;
mod token_bytes;
mod work;

use tokenizers::tokenizer::{Model as _, Tokenizer as HuggingFace};
use tokenizers::{NormalizedString, Normalizer as _, OffsetType};

use crate::{Error, ReadModelFile, Result};

pub use guard::is_catching_panics;
pub use stream::TokenStream;

use guard::catch_panics;
use limits::ExpansionLimits;
use pattern::Patterns;
use tiktoken::TiktokenFile;

/// Maximum size of a tokenizer file, in bytes. Gemma's has 33 million, and reading one takes about ten times its length.
pub const TOKENIZER_FILE_MAX: u64 = 64 << 20;

/// Tokenizer files of models, in order of precedence. The later ones are recognised only to report them.
const FILES: &[&str] = &[
    "tokenizer.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "vocab.json",
    "vocab.txt",
];

/// A tokenizer, which turns text into tokens and back.
pub struct Tokenizer {
    inner: HuggingFace,
    file: String,
    limits: ExpansionLimits,
    patterns: Patterns,
    /// Stop tokens, if the format defines them.
    stops: Vec<u32>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Reads the tokenizer among the files next to a model. `read` returns a file by its name, or `None` if there is no such
    /// file; it need not return more than [`TOKENIZER_FILE_MAX`] bytes.
    ///
    /// # Errors
    /// Returns the errors of `read` and of [`from_file`](Self::from_file), and an error if no file is a tokenizer.
    pub fn from_files<E: From<Error>>(read: &mut ReadModelFile<'_, E>) -> Result<Self, E> {
        for name in FILES {
            if let Some(bytes) = read(name)? {
                return Ok(Self::from_file(name, &bytes)?);
            }
        }
        Err(Error::NoTokenizer.into())
    }

    /// Reads the tokenizer in a file: Hugging Face's `tokenizer.json`, or Llama 3's `tokenizer.model`.
    ///
    /// # Errors
    /// Returns an error if the file has another format, is damaged, or could expand a short text until it fills the memory.
    pub fn from_file(name: &str, bytes: &[u8]) -> Result<Self> {
        let file = || name.to_owned();
        let found = bytes.len() as u64;
        if found > TOKENIZER_FILE_MAX {
            return Err(Error::FileTooLarge { file: file(), found, limit: TOKENIZER_FILE_MAX });
        }
        let unsupported = |reason| Err(Error::Unsupported { file: file(), reason });
        let is_model = std::path::Path::new(name).extension().is_some_and(|ending| ending == "model");
        match name {
            "vocab.json" | "vocab.txt" => unsupported("a vocabulary without tokenizer.json"),
            _ if is_model && tiktoken::is_tiktoken(bytes) => {
                let TiktokenFile { tokenizer: inner, stops, longest } = tiktoken::read(name, bytes)?;
                let limits = ExpansionLimits::from_tiktoken(name, longest)?;
                let patterns = Patterns::of(name, &inner)?;
                Ok(Self { inner, file: file(), limits, patterns, stops })
            }
            _ if is_model => unsupported("a SentencePiece model"),
            _ => {
                let limits = ExpansionLimits::from_json(name, bytes)?;
                // `from_bytes` is generic and would compile the whole deserializer a second time, in this crate.
                let mut inner: HuggingFace = catch_panics(name, || std::str::from_utf8(bytes)?.parse())
                    .map_err(|error| as_file_error(name, error))?;
                // A model takes one text of any length, so there is nothing to truncate or pad, and a file can request
                // padding to any length.
                inner.with_padding(None);
                catch_panics(name, || inner.with_truncation(None).map(drop))?;
                if catch_panics(name, || strips_itself(&inner))? {
                    return unsupported(
                        "an added token is white space, and strips white space around itself",
                    );
                }
                let patterns = Patterns::of(name, &inner)?;
                Ok(Self { inner, file: file(), limits, patterns, stops: Vec::new() })
            }
        }
    }

    /// Returns the `tokenizer.json` of Llama 3's `tokenizer.model`; `None` if the file has another format.
    ///
    /// # Errors
    /// Returns an error if the file is damaged.
    pub fn json_of_tiktoken(bytes: &[u8]) -> Result<Option<String>> {
        let file = "tokenizer.model";
        if !tiktoken::is_tiktoken(bytes) {
            return Ok(None);
        }
        let tokenizer = Self::from_file(file, bytes)?;
        catch_panics(file, || tokenizer.inner.to_string(false)).map(Some)
    }

    /// Returns the name of the tokenizer's file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the default stop tokens, for models whose documents state none. Only Llama 3's format defines them.
    pub fn stops(&self) -> &[u32] {
        &self.stops
    }

    /// Encodes `text` as tokens, including those that the tokenizer adds, such as a begin-of-text token.
    ///
    /// # Errors
    /// Returns an error if the tokenizer fails, or if the text is too long for it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_with(text, true)
    }

    /// Encodes a text that has its special tokens already, such as one that a chat template wrote.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode).
    pub fn encode_rendered(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_with(text, false)
    }

    fn encode_with(&self, text: &str, adds_special: bool) -> Result<Vec<u32>> {
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

    /// Decodes `tokens` to text, without special tokens.
    ///
    /// # Errors
    /// Returns an error if the tokenizer fails, or if the tokens are too many for it.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        self.limits.check_tokens(&self.file, tokens.len())?;
        self.decode_checked(tokens, true)
    }

    /// Decodes one token to text, special tokens included; bytes that are not a whole character become `\u{fffd}`.
    ///
    /// # Errors
    /// Returns an error if the tokenizer fails.
    pub fn decode_one(&self, token: u32) -> Result<String> {
        self.limits.check_tokens(&self.file, 1)?;
        self.decode_checked(&[token], false)
    }

    /// Decodes tokens whose number was checked. The steps of regular expressions are counted if there are any.
    fn decode_checked(&self, tokens: &[u32], skips_special: bool) -> Result<String> {
        if !self.patterns.counts_decoding() {
            return catch_panics(&self.file, || self.inner.decode(tokens, skips_special));
        }
        let added = self.inner.get_added_vocabulary();
        let texts = tokens.iter().filter_map(|token| self.inner.id_to_token(*token));
        let texts = texts.filter(|text| !skips_special || !added.is_special_token(text)).collect();
        catch_panics(&self.file, || self.patterns.decode(&self.inner, texts))?
    }

    /// Creates a streaming decoder for tokens that follow those of `prompt`.
    ///
    /// # Errors
    /// Returns an error if the tokenizer fails.
    pub fn stream(&self, prompt: &[u32]) -> Result<TokenStream<'_>> {
        TokenStream::new(self, prompt)
    }

    /// Returns true if the text up to this token depends on the next token: adjacent byte tokens are decoded together, even
    /// across tokens without text.
    fn needs_next_token(&self, token: u32) -> bool {
        let Some(text) = self.inner.id_to_token(token) else { return true };
        let is_byte = text.len() == 6 && text.starts_with("<0x") && text.ends_with('>');
        (self.limits.joins_bytes && is_byte) || self.inner.get_added_vocabulary().is_special_token(&text)
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

/// Converts a failure while reading a file into an error about the file.
fn as_file_error(name: &str, error: Error) -> Error {
    match error {
        Error::Tokenizer { reason, .. } => Error::Invalid { file: name.to_owned(), reason },
        other => other,
    }
}

const _: () = {
    const fn is_shared<T: Send + Sync + 'static>() {}
    is_shared::<Tokenizer>();
};
