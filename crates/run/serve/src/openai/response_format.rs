//! The form that a request asks of an answer.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::reject::Reject;

/// Form of an answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ResponseFormat {
    Text,
    JsonObject,
    /// Chats have the schema in an object of its own.
    JsonSchema {
        json_schema: Option<JsonSchema>,
        schema: Option<Value>,
    },
}

/// Object with a schema, its name and its description.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct JsonSchema {
    schema: Option<Value>,
}

impl ResponseFormat {
    /// Returns the schema of an answer, which is the member `param` of a request; `None` for any text.
    ///
    /// # Errors
    /// Returns an error if the member has no schema.
    pub(super) fn schema(self, param: &str) -> Result<Option<Value>, Reject> {
        let schema = match self {
            Self::Text => return Ok(None),
            Self::JsonObject => None,
            Self::JsonSchema { json_schema: None, schema: None } => {
                return Err(Reject::param(param, format!("`{param}` has no schema")));
            }
            Self::JsonSchema { json_schema, schema } => json_schema.and_then(|inner| inner.schema).or(schema),
        };
        Ok(Some(schema.unwrap_or_else(|| json!({"type": "object"}))))
    }
}
