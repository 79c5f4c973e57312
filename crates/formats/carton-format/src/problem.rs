//! Problems of a document, with their positions.
//!
//! Facts: the Carton v1 specification, which defines the rules.

use std::fmt;

/// Position in a text document, with line and column counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TextPosition {
    pub line: usize,
    /// Column, counted in characters from 1.
    pub column: usize,
}

impl TextPosition {
    /// Returns the position of the byte at `offset` of `text`.
    pub fn from_offset(text: &str, offset: usize) -> Self {
        PositionCursor::new(text).place(offset)
    }
}

/// Converts byte offsets of a text into positions. Offsets in ascending order take one pass over the text together.
pub(crate) struct PositionCursor<'t> {
    text: &'t str,
    offset: usize,
    place: TextPosition,
}

impl<'t> PositionCursor<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, offset: 0, place: TextPosition { line: 1, column: 1 } }
    }

    /// Returns the position of the byte at `offset`.
    pub(crate) fn place(&mut self, offset: usize) -> TextPosition {
        if offset < self.offset {
            *self = Self::new(self.text);
        }
        let between = self.text.get(self.offset..offset).unwrap_or_default();
        let (column, last_line) = match between.rsplit_once('\n') {
            Some((_, last_line)) => (1, last_line),
            None => (self.place.column, between),
        };
        self.place = TextPosition {
            line: self.place.line.saturating_add(between.matches('\n').count()),
            column: column.saturating_add(last_line.chars().count()),
        };
        self.offset = offset;
        self.place
    }
}

/// One problem of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentProblem {
    /// Path of the document in the carton.
    pub document: String,
    /// Position in the document; `None` if the document was not parsed, or if a top-level field is missing.
    pub place: Option<TextPosition>,
    /// Key path, such as `input[0].dtype`; empty for the document itself.
    pub key: String,
    pub kind: ProblemKind,
}

impl fmt::Display for DocumentProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.document)?;
        if let Some(TextPosition { line, column }) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": ")?;
        if !self.key.is_empty() {
            write!(f, "{} ", self.key.escape_debug())?;
        }
        write!(f, "{}", self.kind)
    }
}

/// All problems of a document, in the document's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentProblems(pub Vec<DocumentProblem>);

impl DocumentProblems {
    /// Returns the number of problems as a text, such as `2 problems found`.
    pub fn count_text(&self) -> String {
        format!("{} found", byte_source::format_things(self.0.len(), "problem"))
    }
}

impl fmt::Display for DocumentProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

/// Kind of problem, with a text that continues after the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemKind {
    /// A text that is not valid TOML.
    #[error("cannot be parsed: {0}")]
    Syntax(String),
    /// A required field that is missing.
    #[error("is missing")]
    Missing,
    /// A field of the wrong type.
    #[error("is {found}, expected {expected}")]
    Type {
        /// Type of the value, with its article.
        found: String,
        /// Required type, with its article.
        expected: &'static str,
    },
    /// A value that the specification does not allow.
    #[error("is `{}`, expected {expected}", found.escape_debug())]
    Value {
        found: String,
        /// Description of the allowed values.
        expected: String,
    },
    /// A text that is longer than the format allows.
    #[error("has {found} characters, at most {limit} are allowed")]
    TooLong {
        /// Length of the text in characters.
        found: usize,
        /// Maximum length in characters.
        limit: usize,
    },
    /// A name that is used twice.
    #[error("is `{}`, which is already used", name.escape_debug())]
    Duplicate { name: String },
    /// A symbol that is used for both a whole shape and a dimension.
    #[error("uses the symbol `{}` for a whole shape and for one dimension", symbol.escape_debug())]
    SymbolKinds { symbol: String },
    /// A symbol that resolves to different values.
    #[error("resolves the symbol `{}` to {found}, but it was {first} before", symbol.escape_debug())]
    SymbolValues {
        symbol: String,
        /// Value at the first use.
        first: String,
        /// Value at this use.
        found: String,
    },
    /// A reference to a tensor or file that does not exist.
    #[error("refers to `{}`, which does not exist", target.escape_debug())]
    Reference { target: String },
    /// A name that is not declared as an input or output.
    #[error("names `{}`, which is not an {what} of the model", name.escape_debug())]
    Undeclared {
        name: String,
        /// The word `input` or `output`.
        what: &'static str,
    },
    /// Tests or examples of a model whose inputs or outputs are not declared.
    #[error("needs inputs and outputs to be specified")]
    PortsNotDeclared,
    /// A tensor whose dtype differs from that of its input or output.
    #[error("is the tensor `{}` of {found}, expected {expected}", tensor.escape_debug())]
    Dtype {
        /// Name of the tensor.
        tensor: String,
        /// Dtype of the tensor.
        found: &'static str,
        /// Dtype of the input or output.
        expected: &'static str,
    },
    /// A tensor whose shape differs from that of its input or output.
    #[error("is the tensor `{}` of shape {found}, expected {expected}", tensor.escape_debug())]
    Shape {
        /// Name of the tensor.
        tensor: String,
        /// Shape of the tensor.
        found: String,
        /// Shape of the input or output.
        expected: String,
    },
    /// A file whose length does not match its tensor.
    #[error("is `{}` with {found} bytes, dtype and shape need {expected}", file.escape_debug())]
    FileLength {
        file: String,
        /// Length of the file in bytes.
        found: u64,
        /// Length in bytes that dtype and shape need.
        expected: String,
    },
    /// A string tensor's file with the wrong number of strings.
    #[error("is `{}` with {found} strings, the shape needs {expected}", file.escape_debug())]
    Strings {
        file: String,
        /// Number of strings in the file.
        found: u64,
        /// Number of strings that the shape needs.
        expected: u64,
    },
    /// A nested tensor inside another nested tensor.
    #[error("names `{}`, which is nested itself", name.escape_debug())]
    Nested {
        /// Name of the inner tensor.
        name: String,
    },
    /// MANIFEST lines that are not sorted by path.
    #[error("must come before `{}`, but follows it", other.escape_debug())]
    LineOrder {
        /// Path of the previous line.
        other: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_in_any_order() {
        let text = "a\nüb\n\nc";
        let places: Vec<_> =
            [8, 0, 1, 2, 4, 5, 6, 7].map(|offset| TextPosition::from_offset(text, offset)).into();
        let mut cursor = PositionCursor::new(text);
        assert_eq!(places, [8, 0, 1, 2, 4, 5, 6, 7].map(|offset| cursor.place(offset)));
        let pairs: Vec<_> = places.iter().map(|place| (place.line, place.column)).collect();
        assert_eq!(pairs, [(4, 2), (1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 1), (4, 1)]);
    }
}
