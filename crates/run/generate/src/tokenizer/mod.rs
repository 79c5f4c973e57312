//! Tokenizers of models: text to tokens, and tokens to text.
//!
//! Facts: `tokenizer.json` is read by Hugging Face's own crate `tokenizers`, with the regular expressions of `fancy-regex`
//! in place of Oniguruma, which is C. `tests/conformance/test_run.py` compares both, character by character.
//!
//! The files are untrusted. `limits.rs` bounds the expansion of a text before a tokenizer is used, `work.rs` bounds the
//! steps of its components and its model, `pattern` those of its regular expressions, and `guard.rs` turns panics of the crate, which some damaged files cause, into errors.

mod added;
mod guard;
mod json;
mod limits;
mod model;
mod pattern;
mod stream;
mod tekken;
mod tiktoken;
mod token_bytes;
mod work;

use crate::{Error, ReadModelFile, Result};

pub use guard::is_catching_panics;
pub use stream::TokenStream;

use json::JsonTokenizer;
use model::ModelTokenizer;

/// Maximum size of a tokenizer file, in bytes. Gemma's has 33 million, and reading one takes about ten times its length.
pub const TOKENIZER_FILE_MAX: u64 = 64 << 20;

/// Tokenizer files of models, in order of precedence. The last three are recognised only to report them.
const FILES: &[&str] = &[
    "tokenizer.json",
    "tokenizer.model",
    "tekken.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "vocab.json",
    "vocab.txt",
];

/// A tokenizer, which turns text into tokens and back.
#[derive(Debug)]
pub struct Tokenizer {
    engine: Engine,
    file: String,
    /// Stop tokens, if the format defines them.
    stops: Vec<u32>,
}

/// The library or the algorithm that a tokenizer runs on.
#[derive(Debug)]
enum Engine {
    Json(Box<JsonTokenizer>),
    Model(Box<ModelTokenizer>),
}

impl Tokenizer {
    /// Reads the tokenizer among the files next to a model. `read` returns a file by its name, or `None` if there is no such
    /// file; it need not return more than [`TOKENIZER_FILE_MAX`] bytes. The tokens that are added to those of a `SentencePiece` model
    /// are in other files.
    ///
    /// # Errors
    /// Returns the errors of `read` and of [`from_file`](Self::from_file), and an error if no file is a tokenizer.
    pub fn from_files<E: From<Error>>(read: &mut ReadModelFile<'_, E>) -> Result<Self, E> {
        for name in FILES {
            if let Some(bytes) = read(name)? {
                let mut tokenizer = Self::from_file(name, &bytes)?;
                if let Engine::Model(model) = &mut tokenizer.engine {
                    model.add_tokens_of(read)?;
                }
                return Ok(tokenizer);
            }
        }
        Err(Error::NoTokenizer.into())
    }

    /// Reads the tokenizer in a file: Hugging Face's `tokenizer.json`, Llama 3's `tokenizer.model`, a `SentencePiece` model, or Mistral's
    /// `tekken.json`.
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
        let (engine, stops) = match name {
            "vocab.json" | "vocab.txt" => return unsupported("a vocabulary without tokenizer.json"),
            "sentencepiece.bpe.model" => return unsupported("a SentencePiece model with other ids"),
            _ if name == "tekken.json" || (is_model && !tiktoken::is_tiktoken(bytes)) => {
                let model = ModelTokenizer::read(name, bytes)?;
                let stops = model.stop().into_iter().collect();
                (Engine::Model(Box::new(model)), stops)
            }
            _ => {
                let (tokenizer, stops) = JsonTokenizer::read(name, bytes, is_model)?;
                (Engine::Json(Box::new(tokenizer)), stops)
            }
        };
        Ok(Self { engine, file: file(), stops })
    }

    /// Returns the `tokenizer.json` of Llama 3's `tokenizer.model`; `None` if the file has another format.
    ///
    /// # Errors
    /// Returns an error if the file is damaged.
    pub fn json_of_tiktoken(bytes: &[u8]) -> Result<Option<String>> {
        if !tiktoken::is_tiktoken(bytes) {
            return Ok(None);
        }
        let (tokenizer, _) = JsonTokenizer::read("tokenizer.model", bytes, true)?;
        tokenizer.to_json().map(Some)
    }

    /// Returns the name of the tokenizer's file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the default stop tokens, for models whose documents state none. `tokenizer.json` defines none.
    pub fn stops(&self) -> &[u32] {
        &self.stops
    }

    /// Encodes `text` as tokens, including those that the tokenizer adds, such as a begin-of-text token.
    ///
    /// # Errors
    /// Returns an error if the tokenizer fails, or if the text is too long for it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        match &self.engine {
            Engine::Json(tokenizer) => tokenizer.encode(text, true),
            Engine::Model(model) => model.encode(text),
        }
    }

    /// Encodes a text that has its special tokens already, such as one that a chat template wrote.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode).
    pub fn encode_rendered(&self, text: &str) -> Result<Vec<u32>> {
        match &self.engine {
            Engine::Json(tokenizer) => tokenizer.encode(text, false),
            Engine::Model(model) => model.encode_rendered(text),
        }
    }

    /// Decodes `tokens` to text, without special tokens.
    ///
    /// # Errors
    /// Returns an error if the tokenizer fails, or if the tokens are too many for it.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        self.decode_with(tokens, true)
    }

    /// Decodes one token to text, special tokens included; bytes that are not a whole character become `\u{fffd}`.
    ///
    /// # Errors
    /// Returns an error if the tokenizer fails.
    pub fn decode_one(&self, token: u32) -> Result<String> {
        self.decode_with(&[token], false)
    }

    fn decode_with(&self, tokens: &[u32], skips_special: bool) -> Result<String> {
        match &self.engine {
            Engine::Json(tokenizer) => tokenizer.decode(tokens, skips_special),
            Engine::Model(model) => model.decode(tokens, skips_special),
        }
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
        match &self.engine {
            Engine::Json(tokenizer) => tokenizer.needs_next_token(token),
            Engine::Model(model) => model.needs_next_token(token),
        }
    }

    /// Returns true for a special token, such as the one that ends a text.
    pub fn is_special(&self, token: u32) -> bool {
        match &self.engine {
            Engine::Json(tokenizer) => tokenizer.is_special(token),
            Engine::Model(model) => model.is_special(token),
        }
    }

    /// Returns the bytes that a token stands for in a text, with its first space; empty if the vocabulary has no such token.
    pub fn token_bytes(&self, token: u32) -> Vec<u8> {
        match &self.engine {
            Engine::Json(tokenizer) => tokenizer.token_bytes(token),
            Engine::Model(model) => model.token_bytes(token),
        }
    }
}

const _: () = {
    const fn is_shared<T: Send + Sync + 'static>() {}
    is_shared::<Tokenizer>();
};
