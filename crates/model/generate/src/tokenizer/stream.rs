//! The text of tokens as they come.
//!
//! A token may end inside a character, and what a tokenizer makes of a token depends on those around it: most put a
//! space before a word only where it is not the first one. So each piece is what the text of the last tokens gains with
//! the new one, as in Hugging Face's `text-generation-inference`. What is sent is never taken back.

use crate::{Result, Tokenizer};

/// The last tokens of a prompt that can matter to what follows: more than the longest character has bytes.
const CONTEXT: usize = 64;

/// Collects tokens and returns text whenever whole characters are known.
#[derive(Debug)]
pub struct Stream<'t> {
    tokenizer: &'t Tokenizer,
    /// The tokens of the last piece, then those that are not sent yet.
    tokens: Vec<u32>,
    /// How many of them are of the last piece.
    sent: usize,
    /// The text of those.
    before: String,
}

impl<'t> Stream<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer, prompt: &[u32]) -> Result<Self> {
        let last = prompt.get(prompt.len().saturating_sub(CONTEXT)..).unwrap_or_default();
        let before = tokenizer.decode(last)?;
        Ok(Self { tokenizer, tokens: last.to_vec(), sent: last.len(), before })
    }

    /// The text that `token` completes; empty if it ends inside a character.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn push(&mut self, token: u32) -> Result<String> {
        self.tokens.push(token);
        // Bytes that are not UTF-8 together change what all of them mean.
        if self.tokenizer.is_open(token) {
            return Ok(String::new());
        }
        let text = self.tokenizer.decode(&self.tokens)?;
        // The rest of the character may follow.
        if text.ends_with(char::REPLACEMENT_CHARACTER) {
            return Ok(String::new());
        }
        let piece = added(&self.before, &text).to_owned();
        if !piece.is_empty() {
            self.tokens.drain(..self.sent);
            self.sent = self.tokens.len();
            self.before = self.tokenizer.decode(&self.tokens)?;
        }
        Ok(piece)
    }

    /// What is left when no token follows.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn finish(self) -> Result<String> {
        let text = self.tokenizer.decode(&self.tokens)?;
        Ok(added(&self.before, &text).to_owned())
    }
}

/// What `text` has after what it shares with `before`.
fn added<'t>(before: &str, text: &'t str) -> &'t str {
    let pairs = before.chars().zip(text.chars());
    let shared = pairs.take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum::<usize>();
    text.get(shared..).unwrap_or_default()
}
