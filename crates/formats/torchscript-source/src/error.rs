//! Why a signature cannot be read.

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a signature cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A record of code is not UTF-8.
    #[error("the code in {} is not text", record.escape_debug())]
    NotText {
        /// The record.
        record: String,
    },
    /// There is no code of a class.
    #[error("there is no code of the class {}", class.escape_debug())]
    NoClass {
        /// Its qualified name.
        class: String,
    },
    /// A class does not have a method.
    #[error("the class {} has no {method}", class.escape_debug())]
    NoMethod {
        /// Its qualified name.
        class: String,
        /// The method.
        method: String,
    },
    /// The text is not what PyTorch writes.
    #[error("line {line} of {}: expected {expected}", record.escape_debug())]
    Syntax {
        /// The record.
        record: String,
        /// The line, from 1.
        line: usize,
        /// What should be there.
        expected: &'static str,
    },
    /// A signature has too many arguments or types, or types that are nested too deep.
    #[error("a signature in {} has more than {limit} {what}", record.escape_debug())]
    TooLarge {
        /// The record.
        record: String,
        /// What was counted.
        what: &'static str,
        /// The most that are read.
        limit: usize,
    },
}
