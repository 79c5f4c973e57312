//! Errors of reading TorchScript source text.

/// Result type of this crate, with [`Error`] as the default error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason why a method signature cannot be read from source text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Source record that is not UTF-8.
    #[error("the code in {} is not text", record.escape_debug())]
    NotText { record: String },
    /// Class whose source is not in the archive.
    #[error("there is no code of the class {}", class.escape_debug())]
    NoClass {
        /// Qualified name, such as `__torch__.net.Net`.
        class: String,
    },
    /// Class without the requested method.
    #[error("the class {} has no {method}", class.escape_debug())]
    NoMethod {
        /// Qualified name, such as `__torch__.net.Net`.
        class: String,
        method: String,
    },
    /// Source text that does not follow the syntax which PyTorch writes.
    #[error("line {line} of {}: expected {expected}", record.escape_debug())]
    Syntax {
        record: String,
        /// Line number, starting at 1.
        line: usize,
        /// Description of the token that the parser expected.
        expected: &'static str,
    },
    /// Signature with too many arguments or types, or with types nested too deep.
    #[error("a signature in {} has more than {limit} {what}", record.escape_debug())]
    TooLarge {
        record: String,
        /// Counted items, such as `arguments`.
        what: &'static str,
        limit: usize,
    },
}
