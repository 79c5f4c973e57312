//! Calls of tools in the answers of models.
//!
//! Facts: the parsers of vLLM (`hermes`, `llama3_json`, `mistral`, `qwen3_coder`) and the templates of models.

use serde_json::Value;

mod body;
mod parser;
mod probe;
mod python_calls;
mod syntax;
#[cfg(test)]
mod tests;

pub(crate) use parser::ToolParser;
pub(crate) use probe::{CONTENT, NAME, Render, call, question, render, shared_start};
pub use syntax::{Attributes, CallBody, CallId, ElementMarks, ToolSyntax, words_of_mark};
pub(crate) use syntax::{first_mark, is_mark};

/// Function that a model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub name: String,
    /// JSON schema of the arguments.
    pub parameters: Value,
}

impl Tool {
    /// Returns the schema of an argument; of one that refers to a definition, the definition.
    pub fn argument(&self, key: &str) -> Option<&Value> {
        let schema = self.parameters.get("properties")?.get(key)?;
        let reference = schema.get("$ref").and_then(Value::as_str);
        match reference.and_then(|reference| reference.strip_prefix('#')) {
            Some(pointer) => self.parameters.pointer(pointer),
            None => Some(schema),
        }
    }
}

/// Returns the texts that a schema lists, or no list if it allows any text; `None` if its values are JSON.
pub fn texts_of_schema(schema: &Value) -> Option<Option<Vec<&str>>> {
    let listed = schema.get("enum").and_then(Value::as_array).map(Vec::as_slice);
    let listed = listed.or_else(|| schema.get("const").map(std::slice::from_ref));
    if let Some(listed) = listed {
        let texts: Option<Vec<&str>> = listed.iter().map(Value::as_str).collect();
        return texts.map(Some);
    }
    let kind = schema.get("type")?;
    let is_text = |kind: &Value| kind == "string";
    (is_text(kind) || kind.as_array().is_some_and(|all| all.iter().any(is_text))).then_some(None)
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

impl ToolCall {
    /// Returns true if the arguments are this object.
    fn has_arguments(&self, arguments: &Value) -> bool {
        serde_json::from_str::<Value>(&self.arguments).is_ok_and(|own| own == *arguments)
    }
}
