//! Triton's `generate` and `generate_stream`.
//!
//! Facts: Triton's generate extension: `text_input` and parameters in, `text_output` out. Triton's backends name the parameters as OpenAI
//! does.

use std::sync::Arc;

use hyper::http::request::Parts;
use serde::de::Deserialize;
use serde::{Deserializer, Serialize};

use super::common::CommonFields;
use super::fields::{ObjectSeed, fields};
use super::form::{AnswerForm, EventWriter, Read, read, respond};
use super::generation::{Answer, GenerationPlan, PromptPlan, Usage, encode, required};
use crate::answer::{RouteResult, json};
use crate::body::Upload;
use crate::reject::Reject;
use crate::route::ModelTarget;
use crate::served_model::ServedModel;
use crate::state::ServerState;
use crate::text::{TextEvent, TextModel};

/// Most tokens of an answer if a request does not say.
const DEFAULT_MAX_TOKENS: u64 = 16;

fields! {
    /// Parameters, which may also be members of the body.
    Parameters {
        max_tokens: u64,
        exclude_input_in_output: bool,
    }
    common: CommonFields
}

fields! {
    /// Body of a request.
    GenerateRequest {
        text_input: String,
        parameters: Parameters,
        id: String,
    }
    common: Parameters
}

impl<'de> Deserialize<'de> for Parameters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (mut parameters, mut param) = (Self::default(), None);
        deserializer.deserialize_map(ObjectSeed { fields: &mut parameters, param: &mut param }).map_err(
            |error| match param {
                Some(param) => serde::de::Error::custom(format!("`{param}`: {error}")),
                None => error,
            },
        )?;
        Ok(parameters)
    }
}

/// Answers a request of `generate`, or of `generate_stream`.
pub(crate) async fn answer(
    state: &Arc<ServerState>,
    parts: &Parts,
    upload: &mut Upload,
    target: &ModelTarget,
    is_stream: bool,
) -> RouteResult {
    let served = state.registry.find(target).map_err(|error| Reject::kserve(&error))?;
    let request: Read<GenerateRequest> = read(state, parts, upload).await?;
    let form = GenerateForm::new(&served);
    respond(state, &served, move |text| plan(text, request, form, is_stream)).await
}

fn plan(
    text: &TextModel,
    Read { fields: request, .. }: Read<GenerateRequest>,
    form: GenerateForm,
    is_stream: bool,
) -> Result<(GenerationPlan, GenerateForm), Reject> {
    let mut parameters = request.parameters.unwrap_or(request.common);
    if parameters.exclude_input_in_output == Some(false) {
        return Err(Reject::bad_request(
            "`exclude_input_in_output` can only be true: an answer is without its input",
        ));
    }
    parameters.common.stream = Some(is_stream);
    let sampling = parameters.common.sampling(text.forward.vocab())?;
    if sampling.choices != 1 {
        return Err(Reject::bad_request("`n` can only be 1"));
    }
    let tokens = encode(text, &required("text_input", request.text_input)?)?;
    let prompts = vec![PromptPlan { tokens, echo: None }];
    let max_tokens = Some(parameters.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS));
    Ok((
        GenerationPlan {
            prompts,
            max_tokens,
            max_tokens_param: "max_tokens",
            sampling,
            scores: None,
            grammar: None,
            shown: Vec::new(),
        },
        form,
    ))
}

/// Form of the answers to a request.
#[derive(Debug)]
struct GenerateForm {
    name: String,
    version: String,
}

#[derive(Serialize)]
struct Generated<'f> {
    model_name: &'f str,
    model_version: &'f str,
    text_output: String,
}

impl GenerateForm {
    fn new(served: &ServedModel) -> Self {
        Self { name: served.name.clone(), version: served.version.to_string() }
    }

    fn body(&self, text_output: String) -> Generated<'_> {
        Generated { model_name: &self.name, model_version: &self.version, text_output }
    }
}

impl AnswerForm for GenerateForm {
    fn whole(&mut self, answers: Vec<Answer>, _: Usage) -> RouteResult {
        json(&self.body(answers.into_iter().map(|answer| answer.text).collect()))
    }

    fn event(&mut self, event: TextEvent, out: &mut EventWriter) {
        if let TextEvent::Text { text, .. } = event {
            out.json(&self.body(text));
        }
    }

    fn end(&mut self, _: Usage, _: &mut EventWriter) {}

    fn fail(&mut self, reject: &Reject, out: &mut EventWriter) {
        out.json(&kserve::ErrorBody { error: reject.error.clone() });
    }
}
