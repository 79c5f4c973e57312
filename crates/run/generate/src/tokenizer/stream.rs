//! Streaming decoder for tokens.
//!
//! A token may end inside a character, and its text depends on its neighbours: most tokenizers put a space before a word
//! only where it is not the first one. So each piece is the text that a new token adds to that of the last tokens, as in
//! Hugging Face's `text-generation-inference`. Text that was returned is never revised.

use crate::{Result, Tokenizer};

/// Number of prompt tokens that are kept as context: more than the longest character has bytes.
const CONTEXT: usize = 64;

/// A streaming decoder, which collects tokens and returns text as soon as its characters are complete.
#[derive(Debug)]
pub struct TokenStream<'t> {
    tokenizer: &'t Tokenizer,
    /// Tokens of the last piece, then the tokens whose text was not returned yet.
    tokens: Vec<u32>,
    last_piece_len: usize,
    last_piece_text: String,
}

impl<'t> TokenStream<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer, prompt: &[u32]) -> Result<Self> {
        let last = prompt.get(prompt.len().saturating_sub(CONTEXT)..).unwrap_or_default();
        let before = tokenizer.decode(last)?;
        Ok(Self { tokenizer, tokens: last.to_vec(), last_piece_len: last.len(), last_piece_text: before })
    }

    /// Adds `token` and returns the text that it completes; empty if the token ends inside a character.
    ///
    /// # Errors
    /// Returns an error if the tokenizer fails.
    pub fn push(&mut self, token: u32) -> Result<String> {
        self.tokens.push(token);
        // A byte that makes a sequence invalid UTF-8 changes the text of the whole sequence.
        if self.tokenizer.needs_next_token(token) {
            return Ok(String::new());
        }
        let text = self.tokenizer.decode(&self.tokens)?;
        // The rest of an incomplete character may follow.
        if text.ends_with(char::REPLACEMENT_CHARACTER) {
            return Ok(String::new());
        }
        let piece = after_common_prefix(&self.last_piece_text, &text).to_owned();
        if !piece.is_empty() {
            self.tokens.drain(..self.last_piece_len);
            self.last_piece_len = self.tokens.len();
            self.last_piece_text = self.tokenizer.decode(&self.tokens)?;
        }
        Ok(piece)
    }

    /// Returns the remaining text after the last token.
    ///
    /// # Errors
    /// Returns an error if the tokenizer fails.
    pub fn finish(self) -> Result<String> {
        let text = self.tokenizer.decode(&self.tokens)?;
        Ok(after_common_prefix(&self.last_piece_text, &text).to_owned())
    }
}

/// Returns the rest of `text` after its common prefix with `before`.
fn after_common_prefix<'t>(before: &str, text: &'t str) -> &'t str {
    let pairs = before.chars().zip(text.chars());
    let shared = pairs.take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum::<usize>();
    text.get(shared..).unwrap_or_default()
}
