//! Tokenizers of models: text to tokens, and tokens to text.
//!
//! Facts: `tokenizer.json` is read by Hugging Face's own crate `tokenizers`, with the regular expressions of `fancy-regex`
//! in place of Oniguruma, which is C. `tests/conformance/test_run.py` compares both, character by character.
//!
//! The files are as hostile as any other. What they can make of a text is bounded before they are used (`limits.rs`), and
//! the crate, which panics on some damaged files, runs where a panic becomes an error (`guard.rs`).

mod guard;
mod limits;
mod stream;
mod tiktoken;

use tokenizers::tokenizer::Tokenizer as HuggingFace;

use crate::{Error, Files, Result};

pub use guard::is_guarded;
pub use stream::Stream;

use guard::guarded;
use limits::Limits;
use tiktoken::Tiktoken;

/// The most bytes of a tokenizer's file. Gemma's has 33 million, and reading one takes about ten times its length.
pub const FILE_MAX: u64 = 64 << 20;

/// The tokenizers that models come with, the one that counts first. The last ones are only recognised.
const FILES: &[&str] = &[
    "tokenizer.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "vocab.json",
    "vocab.txt",
];

/// Turns text into tokens and back.
pub struct Tokenizer {
    inner: HuggingFace,
    file: String,
    limits: Limits,
    /// The tokens that end a text, if the format defines them.
    stops: Vec<u32>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// The tokenizer among the files next to a model. `read` returns a file by its name, or `None` if there is none; it
    /// need not return more than [`FILE_MAX`] bytes.
    ///
    /// # Errors
    /// Those of `read` and of [`from_file`](Self::from_file), and when no file is a tokenizer.
    pub fn from_files<E: From<Error>>(read: &mut Files<'_, E>) -> Result<Self, E> {
        for name in FILES {
            if let Some(bytes) = read(name)? {
                return Ok(Self::from_file(name, &bytes)?);
            }
        }
        Err(Error::NoTokenizer.into())
    }

    /// The tokenizer in a file: one of Hugging Face's `tokenizer.json`, or Llama 3's `tokenizer.model`.
    ///
    /// # Errors
    /// When the file has another format, is damaged, or could turn a short text into one that fills the memory.
    pub fn from_file(name: &str, bytes: &[u8]) -> Result<Self> {
        let file = || name.to_owned();
        let found = bytes.len() as u64;
        if found > FILE_MAX {
            return Err(Error::Large { file: file(), found, limit: FILE_MAX });
        }
        let unsupported = |reason| Err(Error::Unsupported { file: file(), reason });
        let is_model = std::path::Path::new(name).extension().is_some_and(|ending| ending == "model");
        match name {
            "vocab.json" | "vocab.txt" => unsupported("a vocabulary without tokenizer.json"),
            _ if is_model && tiktoken::is_tiktoken(bytes) => {
                let Tiktoken { tokenizer: inner, stops, longest } = tiktoken::read(name, bytes)?;
                let limits = Limits::of_tiktoken(longest);
                Ok(Self { inner, file: file(), limits, stops })
            }
            _ if is_model => unsupported("a SentencePiece model"),
            _ => {
                let limits = Limits::of_json(name, bytes)?;
                // `from_bytes` is generic: the whole deserializer would be compiled once more, here.
                let mut inner: HuggingFace = guarded(name, || std::str::from_utf8(bytes)?.parse())
                    .map_err(|error| as_invalid(name, error))?;
                // A model takes one text of any length, so there is nothing to cut or fill. A file can ask for padding
                // to any length.
                inner.with_padding(None);
                guarded(name, || inner.with_truncation(None).map(drop))?;
                Ok(Self { inner, file: file(), limits, stops: Vec::new() })
            }
        }
    }

    /// The name of its file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The tokens that end a text if no document next to the model names others. Only Llama 3's format does.
    pub fn stops(&self) -> &[u32] {
        &self.stops
    }

    /// The tokens of `text`, with those that the tokenizer adds, such as one for its beginning.
    ///
    /// # Errors
    /// When the tokenizer fails, or the text is too long for it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.limits.check_text(&self.file, text)?;
        let encoding = guarded(&self.file, || self.inner.encode_fast(text, true))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of `tokens`, without special ones.
    ///
    /// # Errors
    /// When the tokenizer fails, or the tokens are too many for it.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        self.limits.check_tokens(&self.file, tokens.len())?;
        guarded(&self.file, || self.inner.decode(tokens, true))
    }

    /// The text of one token, special ones included; bytes that are not a whole character are `\u{fffd}`.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn text_of(&self, token: u32) -> Result<String> {
        self.limits.check_tokens(&self.file, 1)?;
        guarded(&self.file, || self.inner.decode(&[token], false))
    }

    /// The text of tokens that come one after the other and follow those of `prompt`.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn stream(&self, prompt: &[u32]) -> Result<Stream<'_>> {
        Stream::new(self, prompt)
    }

    /// Whether the text up to this token is not known before the next one comes: bytes that follow each other become
    /// characters together, also across tokens that have no text.
    fn is_open(&self, token: u32) -> bool {
        let Some(text) = self.inner.id_to_token(token) else { return true };
        let is_byte = text.len() == 6 && text.starts_with("<0x") && text.ends_with('>');
        (self.limits.joins_bytes && is_byte) || self.inner.get_added_vocabulary().is_special_token(&text)
    }
}

/// A failure to read a file is about the file, not about a text.
fn as_invalid(name: &str, error: Error) -> Error {
    match error {
        Error::Tokenizer { reason, .. } => Error::Invalid { file: name.to_owned(), reason },
        other => other,
    }
}

const _: () = {
    const fn is_shared<T: Send + Sync + 'static>() {}
    is_shared::<Tokenizer>();
};
