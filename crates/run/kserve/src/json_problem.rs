//! Errors at a position in a JSON document.
//!
//! Facts: RFC 8259; the kinds and ranges of values in the protocol's `required_api.md`.

use std::fmt;

use crate::Datatype;

/// Maximum nesting depth of arrays and objects.
pub(crate) const MAX_DEPTH: u32 = 100;

/// Syntax or type error at a position in a JSON document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonProblem {
    /// The document is not UTF-8.
    #[error("it is not UTF-8")]
    InvalidUtf8,
    /// A value is missing or malformed.
    #[error("expected a value")]
    Value,
    /// A number violates the JSON grammar.
    #[error("expected a digit of a number")]
    Number,
    /// The key of an object member is missing.
    #[error("expected a key in quotes")]
    Key,
    /// The colon after a key is missing.
    #[error("expected a colon")]
    Colon,
    /// Neither a comma nor the end of the array or object follows a value.
    #[error("expected a comma or `{end}`")]
    Comma {
        /// Closing bracket of the array or object.
        end: char,
    },
    /// A string has an unescaped control character.
    #[error("a text has a control character, which must be escaped")]
    Control,
    /// A string has an escape sequence that encodes no character.
    #[error("a text has an escape that is not a character")]
    Escape,
    /// A string has no closing quote.
    #[error("a text does not end")]
    Unterminated,
    /// The document is followed by more than whitespace.
    #[error("expected the end")]
    TrailingCharacters,
    /// Arrays and objects are nested deeper than the limit.
    #[error("it is nested deeper than {MAX_DEPTH}")]
    Depth,
    /// The value is of the wrong kind.
    #[error("expected {expected}, found {found}")]
    Kind { expected: JsonKind, found: JsonKind },
    /// A required member of an object is missing.
    #[error("`{0}` is missing")]
    Missing(&'static str),
    /// A member appears more than once in an object.
    #[error("it appears more than once")]
    DuplicateMember,
    /// The value is not an integer in the range of sizes, 0 to [`i64::MAX`].
    #[error("expected a whole number from 0 to 9223372036854775807, found `{}`", found.escape_debug())]
    Size { found: String },
    /// The value of a parameter is an integer outside the ranges of `i64` and `u64`.
    #[error("expected a whole number from -9223372036854775808 to 18446744073709551615, found `{}`", found.escape_debug())]
    Integer { found: String },
    /// The value of a parameter is not a string, number or boolean.
    #[error("expected a string, a number or a boolean, found {found}")]
    Parameter { found: JsonKind },
    /// An element of a tensor is of the wrong kind, or out of range for the datatype.
    #[error("element {element} is {found}, expected {} for {datatype}", datatype.json_values())]
    Element {
        /// Index of the element, counted from 0.
        element: u64,
        datatype: Datatype,
        /// Description of the value, or of its kind.
        found: String,
    },
}

/// Kind of a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonKind {
    Object,
    Array,
    String,
    Number,
    Boolean,
    Null,
}

impl fmt::Display for JsonKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Object => "an object",
            Self::Array => "an array",
            Self::String => "a string",
            Self::Number => "a number",
            Self::Boolean => "a boolean",
            Self::Null => "null",
        })
    }
}

/// Truncates text from the client to 40 characters for an error message, since it may have a million digits.
pub(crate) fn truncate_for_message(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
