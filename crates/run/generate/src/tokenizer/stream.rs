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
    /// Special tokens that have a text.
    shown: Vec<u32>,
    /// Tokens of the last piece, then the tokens whose text was not returned yet.
    tokens: Vec<u32>,
    last_piece_len: usize,
    last_piece_text: String,
}

impl<'t> TokenStream<'t> {
    pub(super) fn new(tokenizer: &'t Tokenizer, prompt: &[u32]) -> Result<Self> {
        let last = prompt.get(prompt.len().saturating_sub(CONTEXT)..).unwrap_or_default();
        let (tokens, last_piece_len) = (last.to_vec(), last.len());
        let last_piece_text = tokenizer.decode(last)?;
        Ok(Self { tokenizer, shown: Vec::new(), tokens, last_piece_len, last_piece_text })
    }

    /// Gives these special tokens their text, which others do not have.
    ///
    /// # Errors
    /// Returns an error if the tokenizer fails.
    pub fn showing(self, shown: Vec<u32>) -> Result<Self> {
        let mut stream = Self { shown, ..self };
        stream.last_piece_text = stream.decode(&stream.tokens)?;
        Ok(stream)
    }

    fn decode(&self, tokens: &[u32]) -> Result<String> {
        let mut text = String::new();
        let mut runs = tokens.split_inclusive(|token| self.shown.contains(token));
        runs.try_for_each(|run| {
            let shown = run.last().filter(|token| self.shown.contains(token));
            let before = run.get(..run.len().saturating_sub(usize::from(shown.is_some())));
            text.push_str(&self.tokenizer.decode(before.unwrap_or_default())?);
            text.push_str(&shown.map_or(Ok(String::new()), |token| self.tokenizer.decode_one(*token))?);
            Ok(())
        })?;
        Ok(text)
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
        let text = self.decode(&self.tokens)?;
        // The rest of an incomplete character may follow.
        if text.ends_with(char::REPLACEMENT_CHARACTER) {
            return Ok(String::new());
        }
        let piece = after_common_prefix(&self.last_piece_text, &text).to_owned();
        if !piece.is_empty() {
            self.tokens.drain(..self.last_piece_len);
            self.last_piece_len = self.tokens.len();
            self.last_piece_text = self.decode(&self.tokens)?;
        }
        Ok(piece)
    }

    /// Returns the remaining text after the last token, without a character that the tokens only begin.
    ///
    /// # Errors
    /// Returns an error if the tokenizer fails.
    pub fn finish_whole(mut self) -> Result<String> {
        let waiting = self.tokens.get(self.last_piece_len..).unwrap_or_default();
        let bytes: Vec<u8> = waiting.iter().flat_map(|token| self.tokenizer.token_bytes(*token)).collect();
        let mut left = unfinished_len(&bytes);
        while left > 0 {
            // Byte tokens are decoded together, so that the beginning of a character would spoil the whole ones before it.
            let len = self.tokens.last().map_or(0, |token| self.tokenizer.token_bytes(*token).len());
            let Some(after) = left.checked_sub(len).filter(|_| len > 0) else { break };
            left = after;
            self.tokens.pop();
        }
        let mut text = self.finish()?;
        if left > 0 && text.ends_with(char::REPLACEMENT_CHARACTER) {
            text.pop();
        }
        Ok(text)
    }

    /// Returns the remaining text after the last token.
    ///
    /// # Errors
    /// Returns an error if the tokenizer fails.
    pub fn finish(self) -> Result<String> {
        let text = self.decode(&self.tokens)?;
        Ok(after_common_prefix(&self.last_piece_text, &text).to_owned())
    }
}

/// Returns the number of bytes at the end that begin a character and do not complete it.
fn unfinished_len(bytes: &[u8]) -> usize {
    let begins = |len: &usize| {
        let end = bytes.len().checked_sub(*len).and_then(|start| bytes.get(start..)).unwrap_or_default();
        std::str::from_utf8(end).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (1..=3).find(begins).unwrap_or(0)
}

/// Returns the rest of `text` after its common prefix with `before`.
fn after_common_prefix<'t>(before: &str, text: &'t str) -> &'t str {
    let pairs = before.chars().zip(text.chars());
    let shared = pairs.take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum::<usize>();
    text.get(shared..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::unfinished_len;

    #[test]
    fn only_what_begins_a_character_is_unfinished() {
        for (bytes, len) in [
            (&b""[..], 0),
            (b"a", 0),
            ("aé".as_bytes(), 0),
            (b"a\xc3", 1),
            (b"\xf0\x9f\x8e", 3),
            (b"\xe4\xbd", 2),
            (b"\xff", 0),
            (b"\xbd\xbd", 0),
            (b"\xe4\xff", 0),
        ] {
            assert_eq!(unfinished_len(bytes), len, "{bytes:?}");
        }
    }
}
