//! Continues texts: `POST /v1/completions`.

use std::sync::Arc;

use hyper::http::request::Parts;
use serde::Serialize;

use super::common::{CommonFields, TOP_MAX, new_id, now, out_of_range};
use super::fields::fields;
use super::form::{AnswerForm, EventWriter, Read, read, respond};
use super::generation::{
    Answer, GenerationPlan, PromptPlan, Usage, UsageMember, encode, find_model, required,
};
use super::logprobs::CompletionLogprobs;
use super::prompt::Prompts;
use crate::answer::{RouteResult, json};
use crate::body::Upload;
use crate::reject::Reject;
use crate::state::ServerState;
use crate::text::{Finish, TextEvent, TextModel, TokenScore};

/// Most tokens of an answer if a request does not say.
const DEFAULT_MAX_TOKENS: u64 = 16;

fields! {
    /// Body of a request.
    CompletionRequest {
        prompt: Prompts,
        max_tokens: u64,
        logprobs: u64,
        echo: bool,
        best_of: u64,
    }
    common: CommonFields
}

/// Answers a request for completions.
pub(super) async fn answer(state: &Arc<ServerState>, parts: &Parts, upload: &mut Upload) -> RouteResult {
    let request: Read<CompletionRequest> = read(state, parts, upload).await?;
    let served = find_model(state, request.fields.common.model_name()?)?;
    let model = served.name.clone();
    respond(state, &served, move |text| plan(text, request, model)).await
}

fn plan(
    text: &TextModel,
    Read { fields: mut request, .. }: Read<CompletionRequest>,
    model: String,
) -> Result<(GenerationPlan, CompletionForm), Reject> {
    let sampling = request.common.sampling(text.forward.vocab())?;
    if request.best_of.is_some_and(|best| usize::try_from(best) != Ok(sampling.choices)) {
        return Err(Reject::param("best_of", "this server returns all answers: `best_of` can only be `n`"));
    }
    if let Some(top) = request.logprobs.filter(|top| *top > TOP_MAX) {
        return Err(out_of_range("logprobs", top, &format!("at most {TOP_MAX}")));
    }
    let is_echoed = request.echo.unwrap_or(false);
    let prompts = match required("prompt", request.prompt)? {
        Prompts::Texts(texts) => texts
            .into_iter()
            .map(|prompt| {
                Ok(PromptPlan { tokens: encode(text, &prompt)?, echo: is_echoed.then_some(prompt) })
            })
            .collect::<Result<_, Reject>>()?,
        Prompts::Tokens(lists) => lists
            .into_iter()
            .map(|tokens| {
                let echo = is_echoed.then(|| text.tokenizer.decode(&tokens)).transpose();
                let echo = echo.map_err(|error| Reject::param("prompt", error.to_string()))?;
                Ok(PromptPlan { tokens, echo })
            })
            .collect::<Result<_, Reject>>()?,
    };
    let scores = request.logprobs.map(|top| usize::try_from(top).unwrap_or(usize::MAX));
    let form = CompletionForm {
        id: new_id("cmpl"),
        created: now(),
        model,
        has_scores: scores.is_some(),
        includes_usage: sampling.includes_usage,
    };
    let max_tokens = Some(request.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS));
    Ok((
        GenerationPlan {
            prompts,
            max_tokens,
            max_tokens_param: "max_tokens",
            sampling,
            scores,
            grammar: None,
            shown: Vec::new(),
        },
        form,
    ))
}

/// Form of the answers to a request.
struct CompletionForm {
    id: String,
    created: u64,
    model: String,
    has_scores: bool,
    includes_usage: bool,
}

#[derive(Serialize)]
struct Completion<'f> {
    id: &'f str,
    object: &'static str,
    created: u64,
    model: &'f str,
    choices: Vec<CompletionChoice>,
    /// Absent, null or the usage.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<UsageMember>,
}

#[derive(Serialize)]
struct CompletionChoice {
    text: String,
    index: usize,
    logprobs: Option<CompletionLogprobs>,
    finish_reason: Option<Finish>,
}

impl CompletionForm {
    fn body(&self, choices: Vec<CompletionChoice>, usage: Option<UsageMember>) -> Completion<'_> {
        let (object, created) = ("text_completion", self.created);
        Completion { id: &self.id, object, created, model: &self.model, choices, usage }
    }

    fn choice(
        &self,
        index: usize,
        text: String,
        scores: &[TokenScore],
        finish_reason: Option<Finish>,
    ) -> CompletionChoice {
        let logprobs = self.has_scores.then(|| CompletionLogprobs::new(scores));
        CompletionChoice { text, index, logprobs, finish_reason }
    }

    fn chunk(&self, choice: CompletionChoice, out: &mut EventWriter) {
        out.json(&self.body(vec![choice], self.includes_usage.then_some(UsageMember(None))));
    }
}

impl AnswerForm for CompletionForm {
    fn whole(&mut self, answers: Vec<Answer>, usage: Usage) -> RouteResult {
        let choice =
            |(index, answer): (usize, Answer)| self.choice(index, answer.text, &answer.scores, answer.finish);
        json(
            &self.body(answers.into_iter().enumerate().map(choice).collect(), Some(UsageMember(Some(usage)))),
        )
    }

    fn event(&mut self, event: TextEvent, out: &mut EventWriter) {
        match event {
            TextEvent::Text { choice, text, scores } => {
                self.chunk(self.choice(choice, text, &scores, None), out);
            }
            TextEvent::End { choice, finish, .. } => {
                self.chunk(
                    CompletionChoice {
                        text: String::new(),
                        index: choice,
                        logprobs: None,
                        finish_reason: Some(finish),
                    },
                    out,
                );
            }
            TextEvent::Failed(_) => {}
        }
    }

    fn end(&mut self, usage: Usage, out: &mut EventWriter) {
        if self.includes_usage {
            out.json(&self.body(Vec::new(), Some(UsageMember(Some(usage)))));
        }
        out.done();
    }
}
