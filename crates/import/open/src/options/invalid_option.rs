//! Errors in the values of options for opening an input and for changing its tensors.
//!
//! The texts do not mention command-line flags, because a caller may not have any.

use byte_source::details;
use tensor::Dtype;

use crate::CastFrom;

/// Reasons for which the value of an option is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidOption {
    /// An option is unknown.
    #[error("there is no option `{}`", name.escape_debug())]
    Unknown { name: String },
    /// An option has a value of a wrong kind.
    #[error("`{name}`: {reason}")]
    Value {
        name: String,
        /// Message of the parser.
        reason: String,
    },
    /// Two options are given of which only one counts.
    #[error("`{first}` and `{second}` exclude each other")]
    Exclusive { first: &'static str, second: &'static str },
    /// A sum is limited to what checkpoints have in common, and none is asked for.
    #[error("`common` is about `add` or `average`")]
    NoSum,
    /// A glob pattern for tensor names cannot be parsed.
    #[error("`{pattern}` is not a pattern: {reason}")]
    Pattern {
        pattern: String,
        /// Message of the parser.
        reason: String,
    },
    /// A regular expression for tensor names cannot be parsed.
    #[error("`{pattern}` is not a regular expression: {reason}")]
    Regex {
        pattern: String,
        /// Message of the parser.
        reason: String,
    },
    /// A replacement for tensor names uses a group that its expression does not have.
    #[error("the replacement for `{pattern}` uses a group `{group}` that it does not have")]
    NoGroup {
        pattern: String,
        /// Number or name of the group.
        group: String,
    },
    /// A dtype cannot be cast to another one.
    #[error("{from} cannot be cast to {to}")]
    CannotCast { from: Dtype, to: Dtype },
    /// The dtype that all floating-point tensors should be cast to is not a floating-point dtype, or has no conversion.
    #[error(
        "{dtype} is not a floating-point dtype that tensors can be cast to, such as float32, bfloat16, float16 or float8_e4m3fn"
    )]
    NotFloatingPoint { dtype: Dtype },
    /// Two casts apply to the same tensors.
    #[error("{from} is given twice")]
    CastTwice { from: CastFrom },
    /// The dtype is a type that only GGUF files have, and decoders if it is `q8_0`.
    #[error(
        "{name} is a type of GGUF files{}",
        if *name == "q8_0" { " and of decoders in cartons, and the output is neither" } else { ", and the output is none" }
    )]
    GgufType { name: &'static str },
}

details! {
    InvalidOption {
        Option: Unknown, Value, Exclusive, NoSum, Pattern, Regex, NoGroup, CannotCast, NotFloatingPoint, CastTwice, GgufType;
    }
}

#[cfg(feature = "cli")]
impl InvalidOption {
    /// Returns the text with options as they are written on a command line, such as `--max-shard-size`.
    pub fn with_flags(&self) -> String {
        match self {
            Self::Value { name, reason } => format!("{}: {reason}", flag(name)),
            Self::Exclusive { first, second } => {
                format!("{} and {} exclude each other", flag(first), flag(second))
            }
            option => option.to_string(),
        }
    }
}

/// Returns an option as it is written on a command line.
#[cfg(feature = "cli")]
pub fn flag(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}
