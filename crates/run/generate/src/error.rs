//! Errors of reading a tokenizer, of tokenization, and of choosing a token.

use byte_source::details;

/// Result with this crate's [`Error`] by default.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of reading a tokenizer, of tokenization, or of choosing a token.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A temperature that is not finite or not above 0.
    #[error("the temperature is {found}, expected a number above 0")]
    Temperature { found: f64 },
    /// A top-p that is not above 0 and at most 1.
    #[error("top-p is {found}, expected a number above 0 and at most 1")]
    TopP { found: f64 },
    /// A model that returned NaN as a logit.
    #[error("the logit of token {token} is not a number (NaN)")]
    NotANumber {
        /// First token with such a logit.
        token: u32,
    },
    /// A model that returned no logits.
    #[error("the model returned no logits")]
    NoLogits,
    /// No file next to the model is a tokenizer.
    #[error("the model has no tokenizer")]
    NoTokenizer,
    /// A tokenizer format that is not supported.
    #[error("`{file}` is not a tokenizer that can be read here: {reason}")]
    Unsupported {
        file: String,
        /// Description of the format.
        reason: &'static str,
    },
    /// A file that is larger than any real tokenizer.
    #[error("`{file}` has {found} bytes, at most {limit} are read")]
    FileTooLarge {
        file: String,
        /// Size of the file, in bytes.
        found: u64,
        /// Maximum size, in bytes.
        limit: u64,
    },
    /// A file that does not have the format of its name.
    #[error("`{file}` cannot be read: {reason}")]
    Invalid { file: String, reason: String },
    /// A token that is longer than any real one.
    #[error("`{file}` has a token of {found} bytes, at most {limit} are read")]
    LongToken {
        file: String,
        /// Length of the token, in bytes.
        found: usize,
        /// Maximum length, in bytes.
        limit: usize,
    },
    /// A tokenizer that can expand a text beyond the maximum size.
    #[error("`{file}` can make a text {growth} times as long, which allows {limit} bytes, found {found}")]
    TextExpansion {
        file: String,
        /// Maximum factor by which the tokenizer expands a text.
        growth: u64,
        /// Size of the text, in bytes.
        found: u64,
        /// Maximum size of a text with this factor, in bytes.
        limit: u64,
    },
    /// A component of a tokenizer with a text or pattern that is longer than any real one.
    #[error("`{file}` has a {what} of {found} bytes in its {part}, at most {limit} are used")]
    LongComponent {
        file: String,
        /// Part of the tokenizer, such as `normalizer`.
        part: &'static str,
        /// Kind of the text.
        what: &'static str,
        /// Length of the text, in bytes.
        found: usize,
        /// Maximum length, in bytes.
        limit: usize,
    },
    /// A tokenizer that needs more steps than any real one.
    #[error(
        "`{file}` needs {found} {what} for its {part}, at most {limit} are run; use a shorter text or another tokenizer"
    )]
    TokenizerWork {
        file: String,
        /// Part of the tokenizer, such as its model.
        part: &'static str,
        /// Unit of the work, in the plural.
        what: &'static str,
        /// Number of these units.
        found: u64,
        /// Maximum number of them.
        limit: u64,
    },
    /// A regular expression that is not used.
    #[error("`{file}` has a pattern in its {part} that is not used here: {reason}")]
    Pattern {
        file: String,
        /// Part of the tokenizer, such as `normalizer`.
        part: &'static str,
        reason: String,
    },
    /// Regular expressions that need more steps for a text than those of any real tokenizer.
    #[error(
        "`{file}` needs more than {limit} steps to search for the patterns of its {part} in this text; use a shorter text or another tokenizer"
    )]
    PatternWork {
        file: String,
        /// Part of the tokenizer, such as `normalizer`.
        part: &'static str,
        /// Maximum number of steps for the text.
        limit: u64,
    },
    /// A tokenizer that failed on a text or on tokens.
    #[error("the tokenizer `{file}` failed: {reason}")]
    Tokenizer { file: String, reason: String },
}

details! {
    Error {
        Option: Temperature, TopP;
        Input: NotANumber, NoLogits, NoTokenizer, TextExpansion;
        Unsupported: Unsupported, FileTooLarge, LongToken, LongComponent, TokenizerWork, Pattern, PatternWork,
            Tokenizer;
        Damaged: Invalid;
    }
}
