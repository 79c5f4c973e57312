//! `POST /v1/responses`, of which nothing is stored.

use std::sync::Arc;

use chat_template::Conversation;
use hyper::http::request::Parts;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::common::CommonFields;
use super::fields::fields;
use super::form::{Read, read, respond};
use super::generation::{GenerationPlan, find_model, required};
use super::response_form::ResponsesForm;
use super::response_format::ResponseFormat;
use super::response_input::Input;
use super::tools::{AnswerPlan, ParamNames, ToolChoice, ToolMode, ToolOptions};
use crate::answer::RouteResult;
use crate::body::Upload;
use crate::reject::Reject;
use crate::state::ServerState;
use crate::text::TextModel;

fields! {
    /// Body of a request.
    ResponsesRequest {
        input: Input,
        instructions: String,
        max_output_tokens: u64,
        text: TextOptions,
        tools: Vec<Value>,
        tool_choice: ToolChoice,
        parallel_tool_calls: bool,
        metadata: Map<String, Value>,
        truncation: Truncation,
        store: bool,
        background: bool,
    }
    common: CommonFields
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TextOptions {
    format: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Truncation {
    Disabled,
}

/// Answers a request for a response.
pub(super) async fn answer(state: &Arc<ServerState>, parts: &Parts, upload: &mut Upload) -> RouteResult {
    let request: Read<ResponsesRequest> = read(state, parts, upload).await?;
    let served = find_model(state, request.fields.common.model_name()?)?;
    let model = served.name.clone();
    respond(state, &served, move |text| plan(text, request, model)).await
}

fn plan(
    text: &TextModel,
    Read { fields: mut request, .. }: Read<ResponsesRequest>,
    model: String,
) -> Result<(GenerationPlan, ResponsesForm), Reject> {
    let sampling = request.common.sampling(text.forward.vocab())?;
    for (name, is_asked) in [("store", request.store), ("background", request.background)] {
        if is_asked == Some(true) {
            return Err(Reject::param(
                name,
                format!("this server keeps no responses: `{name}` can only be false"),
            ));
        }
    }
    if sampling.choices != 1 {
        return Err(Reject::param("n", "a response is one answer: `n` can only be 1"));
    }
    let format = request.text.and_then(|options| options.format).unwrap_or(json!({"type": "text"}));
    let parsed = serde_json::from_value::<ResponseFormat>(format.clone());
    let parsed = parsed
        .map_err(|error| Reject::param("text", format!("the format in `text` is not known: {error}")))?;
    let listed = request.tools.clone().unwrap_or_default();
    let tools = ToolOptions {
        tools: request.tools,
        choice: request.tool_choice.clone(),
        is_parallel: request.parallel_tool_calls,
    };
    let fixed = json!({
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "metadata": request.metadata.unwrap_or_default(),
        "parallel_tool_calls": request.parallel_tool_calls.unwrap_or(true),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "tools": listed,
        "tool_choice": request.tool_choice.unwrap_or(ToolChoice::Mode(ToolMode::Auto)),
        "text": {"format": format},
        "truncation": "disabled",
        "background": false,
        "store": false,
        "previous_response_id": null,
        "reasoning": {"effort": null, "summary": null},
        "error": null,
        "user": request.common.user,
    });
    let messages = required("input", request.input)?.messages(request.instructions.as_deref());
    let names = ParamNames { messages: "input", format: "text" };
    let AnswerPlan { prompt, parser, grammar, tokens } =
        tools.plan(text, Some(parsed), Conversation::new(messages), names)?;
    let max_tokens = request.max_output_tokens;
    let form = ResponsesForm::new(model, fixed, parser);
    let plan = GenerationPlan {
        prompts: vec![prompt],
        max_tokens,
        max_tokens_param: "max_output_tokens",
        sampling,
        scores: None,
        grammar,
        shown: tokens,
    };
    Ok((plan, form))
}
