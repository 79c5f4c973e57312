//! Errors of reading chat templates and of rendering conversations.

use byte_source::details;

/// Result with this crate's [`Error`] by default.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of reading a chat template, or of rendering a conversation with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A document that does not have the format of its name.
    #[error("`{file}` cannot be read: {reason}")]
    Invalid { file: String, reason: String },
    /// A template that is larger than any real one.
    #[error("`{file}` has a chat template of {found} bytes, at most {limit} are read")]
    LongTemplate {
        file: String,
        /// Size of the template, in bytes.
        found: usize,
        /// Maximum size, in bytes.
        limit: usize,
    },
    /// A template with an expression or a chain of tags that is longer than in any real one.
    #[error("`{file}` has a chat template with more than {limit} {what}, at line {line}")]
    ComplexTemplate {
        file: String,
        line: usize,
        /// Parts that are too many, in the plural.
        what: &'static str,
        /// Maximum number of them.
        limit: usize,
    },
    /// A template that is not in Jinja's language.
    #[error("line {line} of the chat template in `{file}` is not understood: {reason}")]
    Syntax { file: String, line: usize, reason: String },
    /// Several named templates without a default.
    #[error("`{file}` has several chat templates and none is the default: {}", names.join(", "))]
    NoDefault { file: String, names: Vec<String> },
    /// A conversation without messages.
    #[error("the conversation has no messages")]
    NoMessages,
    /// A model without a format for conversations.
    #[error("the model has no chat template")]
    NoTemplate,
    /// An error that the template raised, in its own words.
    #[error("the chat template refuses the conversation: {message} (line {line} of `{file}`)")]
    Raised { file: String, line: usize, message: String },
    /// An operation that failed while the template was rendered.
    #[error("the chat template in `{file}` failed at line {line}: {reason}")]
    Failed { file: String, line: usize, reason: String },
    /// A template that needs more steps than any real one.
    #[error(
        "the chat template in `{file}` needs more than {limit} steps for this conversation, at line {line}"
    )]
    Work {
        file: String,
        line: usize,
        /// Maximum number of steps.
        limit: u64,
    },
    /// A system without memory for the stack of the renderer.
    #[error("there is no memory to render the chat template: {reason}")]
    NoThread { reason: String },
}

details! {
    Error {
        Input: NoMessages, NoTemplate, Raised, Failed, NoThread;
        Unsupported: LongTemplate, ComplexTemplate, Syntax, NoDefault, Work;
        Damaged: Invalid;
    }
}
