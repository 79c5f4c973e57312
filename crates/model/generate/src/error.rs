//! Why text cannot be read, or a token cannot be chosen.

use byte_source::ErrorKind;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why text cannot be read, or a token cannot be chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A temperature that logits cannot be divided by.
    #[error("the temperature is {found}, expected a number above 0")]
    Temperature {
        /// The temperature.
        found: f64,
    },
    /// A sum of probabilities out of range.
    #[error("top-p is {found}, expected a number above 0 and at most 1")]
    TopP {
        /// The sum.
        found: f64,
    },
    /// A model whose result is not a number.
    #[error("the logit of token {token} is not a number (NaN)")]
    NotANumber {
        /// The first such token.
        token: u32,
    },
    /// A model that returned no logits.
    #[error("the model returned no logits")]
    NoLogits,
    /// No file next to the model is a tokenizer.
    #[error("misc/ does not contain a tokenizer")]
    NoTokenizer,
    /// A tokenizer that this crate cannot read.
    #[error("`{file}` is not a tokenizer that can be read here: {reason}")]
    Unsupported {
        /// The file.
        file: String,
        /// What it is instead.
        reason: &'static str,
    },
    /// A file that is larger than tokenizers are.
    #[error("`{file}` has {found} bytes, at most {limit} are read")]
    Large {
        /// The file.
        file: String,
        /// Its bytes.
        found: u64,
        /// The most that are read.
        limit: u64,
    },
    /// A file that does not have the format that its name promises.
    #[error("`{file}` cannot be read: {reason}")]
    Invalid {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// A token that is longer than any real one.
    #[error("`{file}` has a token of {found} bytes, at most {limit} are read")]
    LongToken {
        /// The file.
        file: String,
        /// Its bytes.
        found: usize,
        /// The most that are read.
        limit: usize,
    },
    /// A tokenizer that can make a text too long.
    #[error("`{file}` can make a text {growth} times as long, which allows {limit} bytes, found {found}")]
    Growth {
        /// The file.
        file: String,
        /// How many times as long the text can become.
        growth: u64,
        /// Bytes of the text.
        found: u64,
        /// The most bytes.
        limit: u64,
    },
    /// A tokenizer that failed on a text or on tokens.
    #[error("the tokenizer `{file}` failed: {reason}")]
    Tokenizer {
        /// The file.
        file: String,
        /// What went wrong.
        reason: String,
    },
}

impl Error {
    /// Returns what the error means for a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Temperature { .. } | Self::TopP { .. } => ErrorKind::Option,
            Self::NotANumber { .. } | Self::NoLogits | Self::NoTokenizer | Self::Growth { .. } => {
                ErrorKind::Input
            }
            Self::Unsupported { .. }
            | Self::Large { .. }
            | Self::LongToken { .. }
            | Self::Tokenizer { .. } => ErrorKind::Unsupported,
            Self::Invalid { .. } => ErrorKind::Damaged,
        }
    }
}
