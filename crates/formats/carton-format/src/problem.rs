//! What is wrong with a document, and where.
//!
//! Facts: the Carton v1 specification, whose rules these are.

use std::fmt;

/// A place in a text document, both counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

impl Place {
    /// The place of the byte at `offset` of `text`.
    pub fn from_offset(text: &str, offset: usize) -> Self {
        Cursor::new(text).place(offset)
    }
}

/// Converts byte offsets of a text into places. In ascending order, all of them together take one pass.
pub(crate) struct Cursor<'t> {
    text: &'t str,
    offset: usize,
    place: Place,
}

impl<'t> Cursor<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, offset: 0, place: Place { line: 1, column: 1 } }
    }

    /// The place of the byte at `offset`.
    pub(crate) fn place(&mut self, offset: usize) -> Place {
        if offset < self.offset {
            *self = Self::new(self.text);
        }
        let between = self.text.get(self.offset..offset).unwrap_or_default();
        let (column, last_line) = match between.rsplit_once('\n') {
            Some((_, last_line)) => (1, last_line),
            None => (self.place.column, between),
        };
        self.place = Place {
            line: self.place.line.saturating_add(between.matches('\n').count()),
            column: column.saturating_add(last_line.chars().count()),
        };
        self.offset = offset;
        self.place
    }
}

/// One problem of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The document's path in the carton.
    pub document: String,
    /// Where in the document; `None` if the document was not parsed, or if a whole part is missing.
    pub place: Option<Place>,
    /// The key, such as `input[0].dtype`; empty for the document itself.
    pub key: String,
    /// What is wrong.
    pub kind: Kind,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.document)?;
        if let Some(Place { line, column }) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": ")?;
        if !self.key.is_empty() {
            write!(f, "{} ", self.key.escape_debug())?;
        }
        write!(f, "{}", self.kind)
    }
}

/// All problems of a document, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

/// The kinds of problems. Their texts continue after the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Kind {
    /// The text is not valid TOML.
    #[error("cannot be parsed: {0}")]
    Syntax(String),
    /// A field that must be there.
    #[error("is missing")]
    Missing,
    /// A field of the wrong type.
    #[error("is {found}, expected {expected}")]
    Type {
        /// What is there, with its article.
        found: String,
        /// What is expected, with its article.
        expected: &'static str,
    },
    /// A value that is not allowed.
    #[error("is `{}`, expected {expected}", found.escape_debug())]
    Value {
        /// The value.
        found: String,
        /// What is allowed.
        expected: String,
    },
    /// A text that is too long.
    #[error("has {found} characters, at most {limit} are allowed")]
    TooLong {
        /// Its length in characters.
        found: usize,
        /// The most there may be.
        limit: usize,
    },
    /// A name that is used twice.
    #[error("is `{}`, which is already used", name.escape_debug())]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A symbol that is used for both a shape and a size.
    #[error("uses the symbol `{}` for a whole shape and for one dimension", symbol.escape_debug())]
    SymbolKinds {
        /// The symbol.
        symbol: String,
    },
    /// A symbol that does not resolve to one value.
    #[error("resolves the symbol `{}` to {found}, but it was {first} before", symbol.escape_debug())]
    SymbolValues {
        /// The symbol.
        symbol: String,
        /// The value that it had first.
        first: String,
        /// The value that it has here.
        found: String,
    },
    /// A reference to something that does not exist.
    #[error("refers to `{}`, which does not exist", target.escape_debug())]
    Reference {
        /// What is referred to.
        target: String,
    },
    /// A name that is not declared.
    #[error("names `{}`, which is not an {what} of the model", name.escape_debug())]
    Undeclared {
        /// The name.
        name: String,
        /// `input` or `output`.
        what: &'static str,
    },
    /// Tests or examples of a model whose inputs and outputs are not declared.
    #[error("needs inputs and outputs to be specified")]
    Unspecified,
    /// A tensor whose dtype differs from that of its input or output.
    #[error("is the tensor `{}` of {found}, expected {expected}", tensor.escape_debug())]
    Dtype {
        /// The tensor.
        tensor: String,
        /// Its dtype.
        found: &'static str,
        /// The dtype of the input or output.
        expected: &'static str,
    },
    /// A tensor whose shape differs from that of its input or output.
    #[error("is the tensor `{}` of shape {found}, expected {expected}", tensor.escape_debug())]
    Shape {
        /// The tensor.
        tensor: String,
        /// Its shape.
        found: String,
        /// The shape of the input or output.
        expected: String,
    },
    /// A file whose length does not match its tensor.
    #[error("is `{}` with {found} bytes, dtype and shape need {expected}", file.escape_debug())]
    Bytes {
        /// The file.
        file: String,
        /// Its length in bytes.
        found: u64,
        /// The length in bytes that dtype and shape need.
        expected: String,
    },
    /// A string tensor's file with the wrong number of strings.
    #[error("is `{}` with {found} strings, the shape needs {expected}", file.escape_debug())]
    Strings {
        /// The file.
        file: String,
        /// How many strings it holds.
        found: u64,
        /// How many the shape needs.
        expected: u64,
    },
    /// A nested tensor inside another nested one.
    #[error("names `{}`, which is nested itself", name.escape_debug())]
    Nested {
        /// The inner tensor.
        name: String,
    },
    /// Lines out of order.
    #[error("must come before `{}`, but follows it", other.escape_debug())]
    Order {
        /// The path of the line before.
        other: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_in_any_order() {
        let text = "a\nüb\n\nc";
        let places: Vec<_> = [8, 0, 1, 2, 4, 5, 6, 7].map(|offset| Place::from_offset(text, offset)).into();
        let mut cursor = Cursor::new(text);
        assert_eq!(places, [8, 0, 1, 2, 4, 5, 6, 7].map(|offset| cursor.place(offset)));
        let pairs: Vec<_> = places.iter().map(|place| (place.line, place.column)).collect();
        assert_eq!(pairs, [(4, 2), (1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 1), (4, 1)]);
    }
}
