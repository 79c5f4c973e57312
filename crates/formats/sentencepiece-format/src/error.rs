//! Errors of models and of texts.

/// Result with this crate's [`Error`] by default.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a model, or of a text that is too long for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are not a model, or the model is damaged.
    #[error("{0}")]
    Damaged(&'static str),
    /// A kind of model that is not read.
    #[error("{0}")]
    Unsupported(&'static str),
    /// A text that becomes too long.
    #[error("the text is longer than {limit} bytes after its normalization")]
    LongText {
        /// Largest length, in bytes.
        limit: usize,
    },
}
