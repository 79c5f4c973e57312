//! Tools of a request: which of them an answer may call, and the calls in the answer.

use chat_template::{AnswerPiece, ChatTemplate, Conversation, Tool, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::common::random_number;
use super::generation::PromptPlan;
use super::response_format::ResponseFormat;
use crate::reject::Reject;
use crate::text::{AnswerGrammar, AnswerHead, AnswerShape, TextModel};

/// Most tools of a request.
const TOOLS_MAX: usize = 128;

/// Calls that an answer may have.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged, expecting = "expected `none`, `auto`, `required` or a function with its name")]
pub(super) enum ToolChoice {
    Mode(ToolMode),
    /// Chats have the name in an object of its own.
    Function {
        #[serde(rename = "type")]
        _kind: FunctionKind,
        #[serde(skip_serializing_if = "Option::is_none")]
        function: Option<FunctionName>,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ToolMode {
    Auto,
    None,
    Required,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FunctionKind {
    Function,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct FunctionName {
    name: String,
}

/// Members of a request that are about tools.
#[derive(Debug)]
pub(super) struct ToolOptions {
    pub(super) tools: Option<Vec<Value>>,
    pub(super) choice: Option<ToolChoice>,
    pub(super) is_parallel: Option<bool>,
}

/// Tools of a request that were checked.
#[derive(Debug, Default)]
struct CheckedTools {
    /// Tools that the template shows.
    shown: Option<Vec<Value>>,
    /// The same tools.
    tools: Option<Vec<Tool>>,
    /// Tools of which the answer has to have a call.
    required: Option<Vec<Tool>>,
}

/// Prompt of a conversation, and how its answers are read.
#[derive(Debug)]
pub(super) struct AnswerPlan {
    pub(super) prompt: PromptPlan,
    pub(super) parser: AnswerParser,
    pub(super) grammar: Option<AnswerGrammar>,
    /// Special tokens that belong to thoughts, calls or channels.
    pub(super) tokens: Vec<u32>,
}

/// Names of the members that have the conversation and the form of its answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParamNames {
    pub(super) messages: &'static str,
    pub(super) format: &'static str,
}

impl ToolOptions {
    /// Checks the members, and plans the answers to a conversation, which gets the tools.
    ///
    /// # Errors
    /// Returns an error that names the member that cannot be used.
    pub(super) fn plan(
        self,
        text: &TextModel,
        format: Option<ResponseFormat>,
        mut conversation: Conversation,
        names: ParamNames,
    ) -> Result<AnswerPlan, Reject> {
        let is_named = matches!(self.choice, Some(ToolChoice::Function { .. }));
        let is_single = is_named || self.is_parallel == Some(false);
        let schema = format.map_or(Ok(None), |format| format.schema(names.format))?;
        let CheckedTools { shown, tools, required } = self.checked()?;
        conversation.tools = shown;
        let (template, rendered) = render(text, &conversation, names.messages)?;
        let tokens = text.tokenizer.encode_rendered(&rendered);
        let tokens = tokens.map_err(|error| Reject::param(names.messages, error.to_string()))?;
        let prompt = PromptPlan { tokens, echo: None };
        let head = match template.thoughts() {
            _ if template.has_channels() => AnswerHead::Channels,
            Some(marks) => AnswerHead::Thought(marks, marks.place_after(&rendered)),
            None => AnswerHead::Nothing,
        };
        let syntax = template.tool_syntax();
        let is_read = syntax.is_some() || template.has_channels();
        let made = |tools: &[&Tool], schema| {
            let shape = AnswerShape { head, tools, syntax, is_single, schema };
            text.grammars().map_err(str::to_owned)?.answer(text, shape)
        };
        let grammar = match (required, schema) {
            (Some(_), _) if !is_read => {
                let error = "the chat template of this model does not show how it writes calls, so `tool_choice` can only be `auto` or \
                             `none`";
                return Err(Reject::param("tool_choice", error));
            }
            (Some(required), _) => {
                let required: Vec<&Tool> = required.iter().collect();
                Some(made(&required, None).map_err(|error| {
                    Reject::param("tool_choice", format!("a call cannot be enforced: {error}"))
                })?)
            }
            (None, Some(schema)) => {
                let tools: Vec<&Tool> = tools.iter().flatten().filter(|_| is_read).collect();
                Some(made(&tools, Some(schema)).map_err(|error| {
                    Reject::param(names.format, format!("the schema cannot be used: {error}"))
                })?)
            }
            (None, None) => None,
        };
        let marks = template.answer_marks(tools.is_some());
        let tokens = marks.into_iter().filter_map(|word| text.special_token(word)).collect();
        let parser = AnswerParser { parser: template.answer_parser(&rendered, tools), is_single, calls: 0 };
        Ok(AnswerPlan { prompt, parser, grammar, tokens })
    }

    fn checked(self) -> Result<CheckedTools, Reject> {
        let listed = self.tools.unwrap_or_default();
        if listed.len() > TOOLS_MAX {
            let error = format!("`tools` has {} tools, expected at most {TOOLS_MAX}", listed.len());
            return Err(Reject::param("tools", error));
        }
        let shown = listed.into_iter().map(nested).collect::<Result<Vec<_>, _>>()?;
        let tools: Vec<Tool> = shown.iter().filter_map(tool).collect();
        let required: Option<Vec<Tool>> = match self.choice {
            Some(ToolChoice::Mode(ToolMode::None)) => return Ok(CheckedTools::default()),
            None | Some(ToolChoice::Mode(ToolMode::Auto)) => None,
            Some(ToolChoice::Mode(ToolMode::Required)) => Some(tools.clone()),
            Some(ToolChoice::Function { function, name, .. }) => {
                let name = function.map(|function| function.name).or(name);
                Some(tools.iter().filter(|tool| Some(&tool.name) == name.as_ref()).cloned().collect())
            }
        };
        if required.as_ref().is_some_and(Vec::is_empty) {
            let error = "`tool_choice` asks for a tool that `tools` does not have";
            return Err(Reject::param("tool_choice", error));
        }
        if tools.is_empty() {
            return Ok(CheckedTools::default());
        }
        Ok(CheckedTools { shown: Some(shown), tools: Some(tools), required })
    }
}

/// Renders a conversation, which is the member `param` of a request.
///
/// # Errors
/// Returns an error if the model has no chat template, or the template does not take the conversation.
fn render<'t>(
    text: &'t TextModel,
    conversation: &Conversation,
    param: &str,
) -> Result<(&'t ChatTemplate, String), Reject> {
    let template = text.template.as_ref().map_err(|error| Reject::param("model", error.as_str()))?;
    let template = template.as_ref().ok_or_else(|| {
        Reject::param("model", "this model has no chat template; /v1/completions continues texts")
    })?;
    if conversation.messages.iter().any(|message| !message.get("role").is_some_and(Value::is_string)) {
        return Err(Reject::param(param, format!("a message of `{param}` has no `role`")));
    }
    let rendered = template.render(conversation).map_err(|error| Reject::param(param, error.to_string()))?;
    Ok((template, rendered))
}

/// Returns a tool as templates take it: responses have the members of the function in the tool.
fn nested(tool: Value) -> Result<Value, Reject> {
    let refuse = || {
        Reject::param(
            "tools",
            "a tool of `tools` is not an object with `type: \"function\"` and the function's `name`",
        )
    };
    let object = tool.as_object().filter(|tool| tool.get("type").is_some_and(|kind| kind == "function"));
    let object = object.ok_or_else(refuse)?;
    let has_name = |function: &Map<String, Value>| {
        function.get("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty())
    };
    if let Some(function) = object.get("function") {
        return if function.as_object().is_some_and(has_name) { Ok(tool) } else { Err(refuse()) };
    }
    if !has_name(object) {
        return Err(refuse());
    }
    let members = ["name", "description", "parameters"];
    let function: Map<String, Value> = members
        .iter()
        .filter_map(|key| {
            Some(((*key).to_owned(), object.get(*key).filter(|value| !value.is_null())?.clone()))
        })
        .collect();
    Ok(json!({"type": "function", "function": function}))
}

fn tool(tool: &Value) -> Option<Tool> {
    let function = tool.get("function")?;
    let parameters = function.get("parameters").filter(|parameters| !parameters.is_null());
    // A function without a schema has no arguments.
    let none = || json!({"type": "object", "additionalProperties": false});
    Some(Tool {
        name: function.get("name")?.as_str()?.to_owned(),
        parameters: parameters.cloned().unwrap_or_else(none),
    })
}

/// Parser of one answer.
#[derive(Clone, Debug)]
pub(super) struct AnswerParser {
    parser: chat_template::AnswerParser,
    /// True if the answer has at most one call.
    is_single: bool,
    calls: usize,
}

impl AnswerParser {
    /// Adds a piece of the answer. Returns the text and the calls that are complete.
    pub(super) fn push(&mut self, text: &str) -> Vec<AnswerPiece> {
        let pieces = self.parser.push(text);
        self.counted(pieces)
    }

    /// Returns the rest of the answer.
    pub(super) fn finish(&mut self) -> Vec<AnswerPiece> {
        let pieces = self.parser.finish();
        self.counted(pieces)
    }

    /// Returns the number of calls until now.
    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    fn counted(&mut self, mut pieces: Vec<AnswerPiece>) -> Vec<AnswerPiece> {
        pieces.retain(|piece| match piece {
            AnswerPiece::Text(_) | AnswerPiece::Reasoning(_) => true,
            AnswerPiece::Call(_) => {
                let is_kept = !self.is_single || self.calls == 0;
                self.calls = self.calls.saturating_add(usize::from(is_kept));
                is_kept
            }
        });
        pieces
    }
}

/// Returns the id of a call: nine letters and digits, the only form that the templates of Mistral take back.
pub(super) fn new_call_id() -> String {
    format!("{:09x}", random_number() & 0xf_ffff_ffff)
}

/// Returns a call as chats have it. A call without an id gets one.
pub(super) fn call_value(ToolCall { id, name, arguments }: &ToolCall) -> Value {
    let id = id.clone().unwrap_or_else(new_call_id);
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}
