//! Reads JSON member by member, in one pass and without a tree, with the bare tokens `NaN`, `Infinity` and `-Infinity`.
//!
//! Clients of the protocol write floats that are not finite as these tokens, as Python's `json` does, and Triton reads them.
//! `serde_json` refuses them, so this reads with the lexer of `hifijson`, which is made to be extended: it allocates nothing,
//! has no dependency and no `unsafe`. What is ours is the order of tokens, the tokens above, the depth, and positions.
//!
//! Nothing here recurses. Memory is what the caller keeps.
//!
//! Facts: RFC 8259; `json.dumps` of Python for the three tokens.

use std::borrow::Cow;

use hifijson::num::Lex as _;
use hifijson::str::{Lex as _, LexAlloc as _};
use hifijson::token::Lex as _;
use hifijson::{Read as _, SliceLexer};

use crate::error::{Error, Result};
use crate::problem::{JsonProblem, Kind, MAX_DEPTH, shortened};

/// A position in a JSON document, and how deep it is nested.
pub(crate) struct Reader<'j> {
    text: &'j str,
    lexer: SliceLexer<'j>,
    depth: u32,
}

/// A number as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number<'j> {
    /// Digits, with a sign or without.
    Integer(&'j str),
    /// A number with a fraction or an exponent.
    Fraction(&'j str),
    /// `NaN`, `Infinity` or `-Infinity`.
    NotFinite(&'j str),
}

impl<'j> Number<'j> {
    /// Its text.
    pub(crate) fn text(self) -> &'j str {
        match self {
            Self::Integer(text) | Self::Fraction(text) | Self::NotFinite(text) => text,
        }
    }
}

/// A value that was passed over, to be read later.
#[derive(Clone, Copy)]
pub(crate) struct Skipped {
    start: usize,
    depth: u32,
}

impl<'j> Reader<'j> {
    /// Starts to read a document.
    pub(crate) fn new(bytes: &'j [u8]) -> Result<Self> {
        let text = std::str::from_utf8(bytes).map_err(|error| Error::Json {
            at: error.valid_up_to(),
            path: String::new(),
            problem: JsonProblem::NotText,
        })?;
        Ok(Self { text, lexer: SliceLexer::new(text.as_bytes()), depth: 0 })
    }

    /// The position of the next byte, from the start of the document.
    pub(crate) fn position(&self) -> usize {
        self.text.len().saturating_sub(self.lexer.as_slice().len())
    }

    /// How many bytes are left.
    pub(crate) fn remaining(&self) -> usize {
        self.lexer.as_slice().len()
    }

    /// An error here.
    pub(crate) fn error(&self, problem: JsonProblem) -> Error {
        Error::Json { at: self.position(), path: String::new(), problem }
    }

    /// The kind of the next value.
    pub(crate) fn kind(&mut self) -> Result<Kind> {
        Ok(match self.lexer.ws_peek() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b't' | b'f') => Kind::Boolean,
            Some(b'n') => Kind::Null,
            Some(b'-' | b'0'..=b'9' | b'N' | b'I') => Kind::Number,
            _ => return Err(self.error(JsonProblem::Value)),
        })
    }

    /// Checks the kind of the next value.
    pub(crate) fn expect(&mut self, expected: Kind) -> Result<()> {
        let found = self.kind()?;
        if found == expected { Ok(()) } else { Err(self.error(JsonProblem::Kind { expected, found })) }
    }

    /// Reads a text.
    pub(crate) fn string(&mut self) -> Result<Cow<'j, str>> {
        self.expect(Kind::String)?;
        self.quoted()
    }

    /// Reads `true` or `false`.
    pub(crate) fn boolean(&mut self) -> Result<bool> {
        self.expect(Kind::Boolean)?;
        let at = self.position();
        match self.lexer.null_or_bool() {
            Some(Some(value)) => Ok(value),
            _ => Err(Error::Json { at, path: String::new(), problem: JsonProblem::Value }),
        }
    }

    /// Reads a number. The next value is [known](Self::kind) to be one.
    pub(crate) fn number(&mut self) -> Result<Number<'j>> {
        let at = self.position();
        if let [b'N' | b'I', ..] | [b'-', b'I', ..] = self.lexer.as_slice() {
            let mut tokens = ["NaN", "Infinity", "-Infinity"].into_iter();
            if let Some(token) = tokens.find(|token| self.lexer.strip_prefix(token.as_bytes())) {
                return Ok(Number::NotFinite(token));
            }
        }
        let wrong = || Error::Json { at, path: String::new(), problem: JsonProblem::Number };
        let parts = self.lexer.num_ignore().validate().map_err(|_| wrong())?;
        let text = self.text.get(at..self.position()).ok_or_else(wrong)?;
        Ok(if parts.is_int() { Number::Integer(text) } else { Number::Fraction(text) })
    }

    /// Reads the members of an object: `read` gets each key, and reads the value.
    pub(crate) fn object(&mut self, mut read: impl FnMut(&mut Self, &str) -> Result<()>) -> Result<()> {
        self.expect(Kind::Object)?;
        self.open()?;
        if self.closes(b'}') {
            return Ok(());
        }
        loop {
            let key = self.key()?;
            read(self, &key).map_err(|error| error.within(shortened(&key)))?;
            if !self.another(b'}')? {
                return Ok(());
            }
        }
    }

    /// Reads the elements of an array with `read`.
    pub(crate) fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.expect(Kind::Array)?;
        self.open()?;
        let mut items = Vec::new();
        if self.closes(b']') {
            return Ok(items);
        }
        loop {
            let item = read(self).map_err(|error| error.within(format_args!("[{}]", items.len())))?;
            items.push(item);
            if !self.another(b']')? {
                return Ok(items);
            }
        }
    }

    /// Reads the values in an array and in the arrays in it, however they are nested: `read` reads each that is not an array.
    pub(crate) fn nested(&mut self, mut read: impl FnMut(&mut Self, Kind) -> Result<()>) -> Result<()> {
        self.expect(Kind::Array)?;
        let outside = self.depth;
        loop {
            match self.kind()? {
                Kind::Array => {
                    self.open()?;
                    if !self.closes(b']') {
                        continue;
                    }
                }
                kind => read(self, kind)?,
            }
            while self.depth > outside && !self.another(b']')? {}
            if self.depth == outside {
                return Ok(());
            }
        }
    }

    /// Passes over the next value.
    pub(crate) fn skip(&mut self) -> Result<Skipped> {
        self.kind()?;
        let skipped = Skipped { start: self.position(), depth: self.depth };
        let mut ends = Vec::new();
        loop {
            match self.kind()? {
                Kind::Object => {
                    self.open()?;
                    if !self.closes(b'}') {
                        ends.push(b'}');
                        self.key()?;
                        continue;
                    }
                }
                Kind::Array => {
                    self.open()?;
                    if !self.closes(b']') {
                        ends.push(b']');
                        continue;
                    }
                }
                Kind::String => {
                    self.lexer.discarded();
                    self.lexer.str_ignore().map_err(|error| self.error(string_problem(&error)))?;
                }
                Kind::Number => drop(self.number()?),
                Kind::Boolean => drop(self.boolean()?),
                Kind::Null => self.null()?,
            }
            // The value is complete, and so are the arrays and objects that it ends.
            loop {
                let Some(&end) = ends.last() else { return Ok(skipped) };
                if self.another(end)? {
                    if end == b'}' {
                        self.key()?;
                    }
                    break;
                }
                ends.pop();
            }
        }
    }

    /// Goes back to a value that was passed over.
    pub(crate) fn back_to(&self, skipped: Skipped) -> Self {
        let rest = self.text.as_bytes().get(skipped.start..).unwrap_or_default();
        Self { text: self.text, lexer: SliceLexer::new(rest), depth: skipped.depth }
    }

    /// Checks that nothing follows.
    pub(crate) fn end(mut self) -> Result<()> {
        match self.lexer.ws_peek() {
            None => Ok(()),
            Some(_) => Err(self.error(JsonProblem::Trailing)),
        }
    }

    fn null(&mut self) -> Result<()> {
        let at = self.position();
        match self.lexer.null_or_bool() {
            Some(None) => Ok(()),
            _ => Err(Error::Json { at, path: String::new(), problem: JsonProblem::Value }),
        }
    }

    /// Reads a text, at whose first quote the lexer is.
    fn quoted(&mut self) -> Result<Cow<'j, str>> {
        self.lexer.discarded();
        self.lexer.str_string().map_err(|error| self.error(string_problem(&error)))
    }

    /// Reads a key and the colon after it.
    fn key(&mut self) -> Result<Cow<'j, str>> {
        if self.lexer.ws_peek() != Some(b'"') {
            return Err(self.error(JsonProblem::Key));
        }
        let key = self.quoted()?;
        self.lexer.expect(SliceLexer::ws_peek, b':').ok_or_else(|| self.error(JsonProblem::Colon))?;
        Ok(key)
    }

    /// Enters an array or an object.
    fn open(&mut self) -> Result<()> {
        if self.depth >= MAX_DEPTH {
            return Err(self.error(JsonProblem::Depth));
        }
        self.depth = self.depth.saturating_add(1);
        self.lexer.discarded();
        Ok(())
    }

    /// Leaves an array or an object if it ends here.
    fn closes(&mut self, end: u8) -> bool {
        let closes = self.lexer.ws_peek() == Some(end);
        if closes {
            self.lexer.discarded();
            self.depth = self.depth.saturating_sub(1);
        }
        closes
    }

    /// Goes on to the next element or member; false if this was the last, and the array or object has been left.
    fn another(&mut self, end: u8) -> Result<bool> {
        match self.lexer.ws_peek() {
            Some(b',') => {
                self.lexer.discarded();
                Ok(true)
            }
            _ if self.closes(end) => Ok(false),
            _ => Err(self.error(JsonProblem::Comma { end: char::from(end) })),
        }
    }
}

/// Reads the value of a member that an object has at most once.
pub(crate) fn once<'j, T>(
    slot: &mut Option<T>,
    json: &mut Reader<'j>,
    read: impl FnOnce(&mut Reader<'j>) -> Result<T>,
) -> Result<()> {
    if slot.is_some() {
        return Err(json.error(JsonProblem::Twice));
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
        Error::Utf8(_) => JsonProblem::NotText,
    }
}
