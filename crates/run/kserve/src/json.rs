//! Streaming JSON reader: one pass, no document tree, with the bare tokens `NaN`, `Infinity` and `-Infinity`.
//!
//! Clients of the protocol write floats that are not finite as these tokens, as Python's `json` does, and Triton reads them.
//! `serde_json` rejects the tokens, so this module uses the lexer of `hifijson`, which is made to be extended: it allocates
//! nothing, and has no dependency and no `unsafe`. This module adds the grammar, the three tokens, the depth limit and byte
//! positions.
//!
//! No function recurses, and the reader keeps no values; only the caller's results use memory.
//!
//! Facts: RFC 8259; `json.dumps` of Python for the three tokens.

use std::borrow::Cow;

use hifijson::num::Lex as _;
use hifijson::str::{Lex as _, LexAlloc as _};
use hifijson::token::Lex as _;
use hifijson::{Read as _, SliceLexer};

use crate::error::{Error, Result};
use crate::json_problem::{JsonKind, JsonProblem, MAX_DEPTH, truncate_for_message};

/// Cursor in a JSON document: a byte position and its nesting depth.
pub(crate) struct JsonReader<'j> {
    text: &'j str,
    lexer: SliceLexer<'j>,
    depth: u32,
}

/// Text of a JSON number, by notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonNumber<'j> {
    /// Decimal digits with an optional minus sign.
    Integer(&'j str),
    Fraction(&'j str),
    /// `NaN`, `Infinity` or `-Infinity`.
    NotFinite(&'j str),
}

impl<'j> JsonNumber<'j> {
    pub(crate) fn text(self) -> &'j str {
        match self {
            Self::Integer(text) | Self::Fraction(text) | Self::NotFinite(text) => text,
        }
    }
}

/// Position of a skipped value, for [`JsonReader::reader_at`].
#[derive(Clone, Copy)]
pub(crate) struct SkippedValue {
    start: usize,
    depth: u32,
}

impl<'j> JsonReader<'j> {
    /// Creates a reader at the start of a document, which must be UTF-8.
    pub(crate) fn new(bytes: &'j [u8]) -> Result<Self> {
        let text = std::str::from_utf8(bytes).map_err(|error| Error::Json {
            at: error.valid_up_to(),
            path: String::new(),
            problem: JsonProblem::InvalidUtf8,
        })?;
        Ok(Self { text, lexer: SliceLexer::new(text.as_bytes()), depth: 0 })
    }

    pub(crate) fn position(&self) -> usize {
        self.text.len().saturating_sub(self.lexer.as_slice().len())
    }

    pub(crate) fn remaining(&self) -> usize {
        self.lexer.as_slice().len()
    }

    pub(crate) fn error(&self, problem: JsonProblem) -> Error {
        Error::Json { at: self.position(), path: String::new(), problem }
    }

    /// Returns the kind of the next value, from its first character, or from the whole word if it is one.
    pub(crate) fn kind(&mut self) -> Result<JsonKind> {
        let first = self.lexer.ws_peek();
        let is = |word: &str| self.lexer.as_slice().starts_with(word.as_bytes());
        Ok(match first {
            Some(b'{') => JsonKind::Object,
            Some(b'[') => JsonKind::Array,
            Some(b'"') => JsonKind::String,
            Some(b't' | b'f') if is("true") || is("false") => JsonKind::Boolean,
            Some(b'n') if is("null") => JsonKind::Null,
            Some(b'-' | b'0'..=b'9' | b'N' | b'I') => JsonKind::Number,
            _ => return Err(self.error(JsonProblem::Value)),
        })
    }

    pub(crate) fn expect(&mut self, expected: JsonKind) -> Result<()> {
        let found = self.kind()?;
        if found == expected { Ok(()) } else { Err(self.error(JsonProblem::Kind { expected, found })) }
    }

    pub(crate) fn string(&mut self) -> Result<Cow<'j, str>> {
        self.expect(JsonKind::String)?;
        self.quoted()
    }

    pub(crate) fn boolean(&mut self) -> Result<bool> {
        self.expect(JsonKind::Boolean)?;
        let at = self.position();
        match self.lexer.null_or_bool() {
            Some(Some(value)) => Ok(value),
            _ => Err(Error::Json { at, path: String::new(), problem: JsonProblem::Value }),
        }
    }

    /// Reads a number value. The caller has checked with [`kind`](Self::kind) that the next value is a number.
    pub(crate) fn number(&mut self) -> Result<JsonNumber<'j>> {
        let at = self.position();
        if let [b'N' | b'I', ..] | [b'-', b'I', ..] = self.lexer.as_slice() {
            let mut tokens = ["NaN", "Infinity", "-Infinity"].into_iter();
            if let Some(token) = tokens.find(|token| self.lexer.strip_prefix(token.as_bytes())) {
                return Ok(JsonNumber::NotFinite(token));
            }
        }
        let wrong = || Error::Json { at, path: String::new(), problem: JsonProblem::Number };
        let parts = self.lexer.num_ignore().validate().map_err(|_| wrong())?;
        let text = self.text.get(at..self.position()).ok_or_else(wrong)?;
        Ok(if parts.is_int() { JsonNumber::Integer(text) } else { JsonNumber::Fraction(text) })
    }

    /// Reads an object, calling `read` for each member with the key; `read` reads the value.
    pub(crate) fn object(&mut self, mut read: impl FnMut(&mut Self, &str) -> Result<()>) -> Result<()> {
        self.expect(JsonKind::Object)?;
        self.open()?;
        if self.close_if_next(b'}') {
            return Ok(());
        }
        loop {
            let key = self.key()?;
            read(self, &key).map_err(|error| error.prepend_path(truncate_for_message(&key)))?;
            if !self.comma_or_close(b'}')? {
                return Ok(());
            }
        }
    }

    /// Reads an array, calling `read` for each element.
    pub(crate) fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.expect(JsonKind::Array)?;
        self.open()?;
        let mut items = Vec::new();
        if self.close_if_next(b']') {
            return Ok(items);
        }
        loop {
            let item = read(self).map_err(|error| error.prepend_path(format_args!("[{}]", items.len())))?;
            items.push(item);
            if !self.comma_or_close(b']')? {
                return Ok(items);
            }
        }
    }

    /// Reads an array with arrays nested to any depth, calling `read` for each value that is not an array, in order.
    pub(crate) fn nested(&mut self, mut read: impl FnMut(&mut Self, JsonKind) -> Result<()>) -> Result<()> {
        self.expect(JsonKind::Array)?;
        let outside = self.depth;
        loop {
            match self.kind()? {
                JsonKind::Array => {
                    self.open()?;
                    if !self.close_if_next(b']') {
                        continue;
                    }
                }
                kind => read(self, kind)?,
            }
            while self.depth > outside && !self.comma_or_close(b']')? {}
            if self.depth == outside {
                return Ok(());
            }
        }
    }

    /// Skips the next value with its nested values, checking the syntax, and returns its position.
    pub(crate) fn skip(&mut self) -> Result<SkippedValue> {
        self.kind()?;
        let skipped = SkippedValue { start: self.position(), depth: self.depth };
        let mut ends = Vec::new();
        loop {
            match self.kind()? {
                JsonKind::Object => {
                    self.open()?;
                    if !self.close_if_next(b'}') {
                        ends.push(b'}');
                        self.key()?;
                        continue;
                    }
                }
                JsonKind::Array => {
                    self.open()?;
                    if !self.close_if_next(b']') {
                        ends.push(b']');
                        continue;
                    }
                }
                JsonKind::String => {
                    self.lexer.discarded();
                    self.lexer.str_ignore().map_err(|error| self.error(string_problem(&error)))?;
                }
                JsonKind::Number => drop(self.number()?),
                JsonKind::Boolean => drop(self.boolean()?),
                JsonKind::Null => self.null()?,
            }
            // The value is complete: close each array and object of which it is the last element.
            loop {
                let Some(&end) = ends.last() else { return Ok(skipped) };
                if self.comma_or_close(end)? {
                    if end == b'}' {
                        self.key()?;
                    }
                    break;
                }
                ends.pop();
            }
        }
    }

    pub(crate) fn reader_at(&self, skipped: SkippedValue) -> Self {
        let rest = self.text.as_bytes().get(skipped.start..).unwrap_or_default();
        Self { text: self.text, lexer: SliceLexer::new(rest), depth: skipped.depth }
    }

    pub(crate) fn end(mut self) -> Result<()> {
        match self.lexer.ws_peek() {
            None => Ok(()),
            Some(_) => Err(self.error(JsonProblem::TrailingCharacters)),
        }
    }

    fn null(&mut self) -> Result<()> {
        let at = self.position();
        match self.lexer.null_or_bool() {
            Some(None) => Ok(()),
            _ => Err(Error::Json { at, path: String::new(), problem: JsonProblem::Value }),
        }
    }

    /// Reads a string; the lexer is at its opening quote.
    fn quoted(&mut self) -> Result<Cow<'j, str>> {
        self.lexer.discarded();
        self.lexer.str_string().map_err(|error| self.error(string_problem(&error)))
    }

    fn key(&mut self) -> Result<Cow<'j, str>> {
        if self.lexer.ws_peek() != Some(b'"') {
            return Err(self.error(JsonProblem::Key));
        }
        let key = self.quoted()?;
        self.lexer.expect(SliceLexer::ws_peek, b':').ok_or_else(|| self.error(JsonProblem::Colon))?;
        Ok(key)
    }

    /// Consumes the opening bracket of an array or object, and checks the nesting depth.
    fn open(&mut self) -> Result<()> {
        if self.depth >= MAX_DEPTH {
            return Err(self.error(JsonProblem::Depth));
        }
        self.depth = self.depth.saturating_add(1);
        self.lexer.discarded();
        Ok(())
    }

    /// Consumes the closing bracket `end` if it is next, and returns true if so.
    fn close_if_next(&mut self, end: u8) -> bool {
        let closes = self.lexer.ws_peek() == Some(end);
        if closes {
            self.lexer.discarded();
            self.depth = self.depth.saturating_sub(1);
        }
        closes
    }

    /// Consumes a comma, or the closing bracket `end`. Returns true after a comma: another element or member follows.
    fn comma_or_close(&mut self, end: u8) -> Result<bool> {
        match self.lexer.ws_peek() {
            Some(b',') => {
                self.lexer.discarded();
                Ok(true)
            }
            _ if self.close_if_next(end) => Ok(false),
            _ => Err(self.error(JsonProblem::Comma { end: char::from(end) })),
        }
    }
}

/// Reads the value of a member into `slot`, or fails if the object has had this member before.
pub(crate) fn read_unique_member<'j, T>(
    slot: &mut Option<T>,
    json: &mut JsonReader<'j>,
    read: impl FnOnce(&mut JsonReader<'j>) -> Result<T>,
) -> Result<()> {
    if slot.is_some() {
        return Err(json.error(JsonProblem::DuplicateMember));
    }
    *slot = Some(read(json)?);
    Ok(())
}

fn string_problem(error: &hifijson::str::Error) -> JsonProblem {
    use hifijson::str::Error;
    match error {
        Error::Control => JsonProblem::Control,
        Error::Escape(_) => JsonProblem::Escape,
        Error::Eof => JsonProblem::Unterminated,
        Error::Utf8(_) => JsonProblem::InvalidUtf8,
    }
}
