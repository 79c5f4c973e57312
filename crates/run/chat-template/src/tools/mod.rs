//! Calls of tools in the answers of models.
//!
//! Facts: the parsers of vLLM (`hermes`, `llama3_json`, `mistral`, `qwen3_coder`) and the templates of models.

mod body;
mod parser;
mod syntax;
#[cfg(test)]
mod tests;

pub(crate) use parser::add_text;
pub use parser::{AnswerPiece, ToolParser};
pub use syntax::{CallBody, CallId, ElementMarks, ToolSyntax, words_of_mark};

/// Function that a model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub name: String,
    /// JSON schema of the arguments.
    pub parameters: serde_json::Value,
}

/// Call of a function, as a model wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// Id of the call, if the model wrote one.
    pub id: Option<String>,
    pub name: String,
    /// Arguments as the text of a JSON object.
    pub arguments: String,
}
