//! What can be wrong at a position of a JSON document.
//!
//! Facts: RFC 8259; the kinds and ranges of values in the protocol's `required_api.md`.

use std::fmt;

use crate::Datatype;

/// How deep arrays and objects may be nested.
pub(crate) const MAX_DEPTH: u32 = 100;

/// What is wrong at a position of a JSON document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonProblem {
    /// The bytes are not UTF-8.
    #[error("it is not UTF-8")]
    NotText,
    /// There is no value.
    #[error("expected a value")]
    Value,
    /// A number is not written as JSON writes it.
    #[error("expected a digit of a number")]
    Number,
    /// There is no key of an object.
    #[error("expected a key in quotes")]
    Key,
    /// There is no colon after a key.
    #[error("expected a colon")]
    Colon,
    /// There is no comma, and the array or object does not end.
    #[error("expected a comma or `{end}`")]
    Comma {
        /// What would end the array or object.
        end: char,
    },
    /// A text has a control character.
    #[error("a text has a control character, which must be escaped")]
    Control,
    /// A text has an escape that stands for no character.
    #[error("a text has an escape that is not a character")]
    Escape,
    /// A text does not end.
    #[error("a text does not end")]
    Unterminated,
    /// Something follows the document.
    #[error("expected the end")]
    Trailing,
    /// Arrays and objects are nested too deeply.
    #[error("it is nested deeper than {MAX_DEPTH}")]
    Depth,
    /// The value is of another kind.
    #[error("expected {expected}, found {found}")]
    Kind {
        /// The kind that belongs here.
        expected: Kind,
        /// The kind of the value.
        found: Kind,
    },
    /// An object must have this member.
    #[error("`{0}` is missing")]
    Missing(&'static str),
    /// An object has this member twice.
    #[error("it appears more than once")]
    Twice,
    /// The value is not a size.
    #[error("expected a whole number from 0 to 9223372036854775807, found `{}`", found.escape_debug())]
    Size {
        /// The number.
        found: String,
    },
    /// The value of a parameter is an integer that neither an i64 nor a u64 can have.
    #[error("expected a whole number from -9223372036854775808 to 18446744073709551615, found `{}`", found.escape_debug())]
    Integer {
        /// The number.
        found: String,
    },
    /// The value of a parameter is not one that parameters can have.
    #[error("expected a string, a number or a boolean, found {found}")]
    Parameter {
        /// The kind of the value.
        found: Kind,
    },
    /// An element of a tensor is of another kind or out of the range of the datatype.
    #[error("element {element} is {found}, expected {} for {datatype}", datatype.element())]
    Element {
        /// The number of the element, from 0 on.
        element: u64,
        /// The datatype.
        datatype: Datatype,
        /// The value, or its kind.
        found: String,
    },
}

/// The kind of a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of JSON")]
pub enum Kind {
    Object,
    Array,
    String,
    Number,
    Boolean,
    Null,
}

impl fmt::Display for Kind {
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

/// A text of the client for an error. It may have sent a million digits.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
