//! Tools of a request: which of them an answer may call, and the calls in the answer.

use chat_template::{
    AnswerPiece, CHANNEL_MARKS, ChannelParser, ChatTemplate, Tool, ToolCall, ToolParser, ToolSyntax,
    words_of_mark,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::common::random_number;
use super::response_format::ResponseFormat;
use crate::reject::Reject;
use crate::text::{AnswerGrammar, TextModel};

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

/// Tools of a request, as its answers use them.
#[derive(Debug)]
pub(super) struct ToolPlan {
    /// Tools that the template shows.
    pub(super) shown: Option<Vec<Value>>,
    pub(super) parser: AnswerParser,
    pub(super) grammar: Option<AnswerGrammar>,
    /// Special tokens that belong to calls or channels.
    pub(super) tokens: Vec<u32>,
}

impl ToolOptions {
    /// Checks the members, and plans the calls of an answer whose form is the member `param`.
    ///
    /// # Errors
    /// Returns an error that names the member that cannot be used.
    pub(super) fn plan(
        self,
        text: &TextModel,
        format: Option<ResponseFormat>,
        param: &str,
    ) -> Result<ToolPlan, Reject> {
        let listed = self.tools.unwrap_or_default();
        if listed.len() > TOOLS_MAX {
            let error = format!("`tools` has {} tools, expected at most {TOOLS_MAX}", listed.len());
            return Err(Reject::param("tools", error));
        }
        let shown = listed.into_iter().map(nested).collect::<Result<Vec<_>, _>>()?;
        let tools: Vec<Tool> = shown.iter().filter_map(tool).collect();
        let schema = format.map_or(Ok(None), |format| format.schema(param))?;
        let all = || tools.iter().collect::<Vec<_>>();
        let wanted = match &self.choice {
            Some(ToolChoice::Mode(ToolMode::None)) => return ToolPlan::without(text, schema, param),
            None | Some(ToolChoice::Mode(ToolMode::Auto)) => None,
            Some(ToolChoice::Mode(ToolMode::Required)) => Some(all()),
            Some(ToolChoice::Function { function, name, .. }) => {
                let name = function.as_ref().map(|function| &function.name).or(name.as_ref());
                Some(tools.iter().filter(|tool| Some(&tool.name) == name).collect())
            }
        };
        if wanted.as_ref().is_some_and(Vec::is_empty) {
            let error = "`tool_choice` asks for a tool that `tools` does not have";
            return Err(Reject::param("tool_choice", error));
        }
        if tools.is_empty() {
            return ToolPlan::without(text, schema, param);
        }
        let template = text.template.as_ref().ok().and_then(Option::as_ref);
        let has_channels = has_channels(text);
        let syntax = template.and_then(|template| template.tool_syntax()).filter(|_| !has_channels);
        let is_named = matches!(self.choice, Some(ToolChoice::Function { .. }));
        let is_single = is_named || self.is_parallel == Some(false);
        let calls = |syntax: &ToolSyntax, tools: &[&Tool], instead: Option<Value>| {
            text.grammars().map_err(str::to_owned)?.calls(text, syntax, tools, is_single, instead)
        };
        let in_channels = |tools: &[&Tool], instead: Option<Value>| {
            text.grammars().map_err(str::to_owned)?.channels(text, tools, instead)
        };
        let grammar = match (wanted, syntax, schema) {
            (Some(wanted), _, _) if has_channels => Some(in_channels(&wanted, None).map_err(|error| {
                Reject::param("tool_choice", format!("a call cannot be enforced: {error}"))
            })?),
            (None, _, Some(schema)) if has_channels => {
                Some(in_channels(&all(), Some(schema)).map_err(|error| unusable(param, &error))?)
            }
            (Some(_), None, _) => {
                let error = "the chat template of this model does not show how it writes calls, so `tool_choice` can only be `auto` or \
                             `none`";
                return Err(Reject::param("tool_choice", error));
            }
            (Some(wanted), Some(syntax), _) => {
                let made = calls(syntax, &wanted, None);
                Some(made.map_err(|error| {
                    Reject::param("tool_choice", format!("a call cannot be enforced: {error}"))
                })?)
            }
            (None, Some(syntax), Some(schema)) => {
                Some(calls(syntax, &all(), Some(schema)).map_err(|error| unusable(param, &error))?)
            }
            (None, _, schema) => schema_grammar(text, schema, param)?,
        };
        let marks = syntax.into_iter().flat_map(ToolSyntax::marks).flat_map(words_of_mark);
        let tokens = marks.filter_map(|word| text.special_token(word.trim()));
        let tokens = tokens.chain(channel_tokens(text)).collect();
        let parts = match syntax {
            _ if has_channels => AnswerParts::Channels(ChannelParser::new(true)),
            Some(syntax) => AnswerParts::Calls(Box::new(ToolParser::new(syntax.clone(), tools))),
            None => AnswerParts::Text,
        };
        Ok(ToolPlan {
            shown: Some(shown),
            parser: AnswerParser { parts, is_single, calls: 0 },
            grammar,
            tokens,
        })
    }
}

impl ToolPlan {
    /// Plans an answer without calls.
    fn without(text: &TextModel, schema: Option<Value>, param: &str) -> Result<Self, Reject> {
        let has_channels = has_channels(text);
        let parts =
            if has_channels { AnswerParts::Channels(ChannelParser::new(false)) } else { AnswerParts::Text };
        let parser = AnswerParser { parts, is_single: false, calls: 0 };
        let grammar = schema_grammar(text, schema, param)?;
        Ok(Self { shown: None, parser, grammar, tokens: channel_tokens(text).collect() })
    }
}

/// Returns true if the model writes its answers in channels.
fn has_channels(text: &TextModel) -> bool {
    let template = text.template.as_ref().ok().and_then(Option::as_ref);
    template.is_some_and(ChatTemplate::has_channels)
}

/// Returns the special tokens of the channels of a model's answers.
fn channel_tokens(text: &TextModel) -> impl Iterator<Item = u32> {
    let marks = if has_channels(text) { CHANNEL_MARKS.as_slice() } else { &[] };
    marks.iter().filter_map(|mark| text.special_token(mark))
}

/// Returns the grammar of answers of a schema, which is in the member `param`.
fn schema_grammar(
    text: &TextModel,
    schema: Option<Value>,
    param: &str,
) -> Result<Option<AnswerGrammar>, Reject> {
    let Some(schema) = schema else { return Ok(None) };
    let made = text.grammars().map_err(str::to_owned).and_then(|grammars| {
        if has_channels(text) { grammars.channels(text, &[], Some(schema)) } else { grammars.json(schema) }
    });
    made.map(Some).map_err(|error| unusable(param, &error))
}

fn unusable(param: &str, error: &str) -> Reject {
    Reject::param(param, format!("the schema cannot be used: {error}"))
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

/// Parser of one answer, whose text stays text if the model's calls cannot be read.
#[derive(Clone, Debug)]
pub(super) struct AnswerParser {
    parts: AnswerParts,
    /// True if the answer has at most one call.
    is_single: bool,
    calls: usize,
}

#[derive(Clone, Debug)]
enum AnswerParts {
    Text,
    Calls(Box<ToolParser>),
    Channels(ChannelParser),
}

impl AnswerParser {
    /// Adds a piece of the answer. Returns the text and the calls that are complete.
    pub(super) fn push(&mut self, text: String) -> Vec<AnswerPiece> {
        let pieces = match &mut self.parts {
            AnswerParts::Calls(parser) => parser.push(&text),
            AnswerParts::Channels(parser) => parser.push(&text),
            AnswerParts::Text if text.is_empty() => Vec::new(),
            AnswerParts::Text => vec![AnswerPiece::Text(text)],
        };
        self.counted(pieces)
    }

    /// Returns the rest of the answer.
    pub(super) fn finish(&mut self) -> Vec<AnswerPiece> {
        let pieces = match &mut self.parts {
            AnswerParts::Calls(parser) => parser.finish(),
            AnswerParts::Channels(parser) => parser.finish(),
            AnswerParts::Text => Vec::new(),
        };
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
