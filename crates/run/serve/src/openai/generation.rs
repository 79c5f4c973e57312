//! Hands prompts to a model's engine, and receives the answers.

use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::mpsc;

use super::common::{Sampling, missing};
use crate::budget::{Need, is_safe};
use crate::reject::Reject;
use crate::route::ModelTarget;
use crate::served_model::ServedModel;
use crate::state::ServerState;
use crate::text::{
    AnswerGrammar, ChoiceOptions, Finish, PromptRequest, TextEngine, TextEvent, TextModel, TokenScore,
};

/// Prompts of a request, and what is asked about them.
#[derive(Debug)]
pub(super) struct GenerationPlan {
    pub(super) prompts: Vec<PromptPlan>,
    /// Most tokens of an answer; `None` for the rest of the context.
    pub(super) max_tokens: Option<u64>,
    /// Name of the member with this number.
    pub(super) max_tokens_param: &'static str,
    pub(super) sampling: Sampling,
    /// Number of most probable tokens to return with each token; `None` for no scores.
    pub(super) scores: Option<usize>,
    /// Grammar of an answer; `None` for any text.
    pub(super) grammar: Option<AnswerGrammar>,
    /// Special tokens that are a part of the text of an answer.
    pub(super) shown: Vec<u32>,
}

/// Prompt, and its text if the answer begins with it.
#[derive(Debug)]
pub(super) struct PromptPlan {
    pub(super) tokens: Vec<u32>,
    pub(super) echo: Option<String>,
}

/// Answers that are generated. Dropped, they are generated no further.
#[derive(Debug)]
pub(super) struct Generation {
    events: mpsc::Receiver<TextEvent>,
    /// First event, which was read before the response started.
    first: Option<TextEvent>,
    pub(super) choices: usize,
    unfinished: usize,
    pub(super) usage: Usage,
}

/// Tokens of a request and its answers.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
#[expect(clippy::struct_field_names, reason = "the protocol names them")]
pub(super) struct Usage {
    pub(super) prompt_tokens: usize,
    pub(super) completion_tokens: usize,
    pub(super) total_tokens: usize,
}

/// `usage` of a body; null in the chunks of a stream before the last.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(super) struct UsageMember(pub(super) Option<Usage>);

/// Whole answer to a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) scores: Vec<TokenScore>,
    pub(super) finish: Option<Finish>,
}

/// Finds the model of a request, which generates texts.
///
/// # Errors
/// Returns an error if there is no such model, or if it generates no texts.
pub(super) fn find_model(state: &ServerState, name: &str) -> Result<Arc<ServedModel>, Reject> {
    let target = ModelTarget { name: name.to_owned(), version: None };
    let served = state.registry.find(&target).map_err(|_| {
        let shown = name.chars().take(200).flat_map(char::escape_debug).collect::<String>();
        let error = format!("the model `{shown}` does not exist; GET /v1/models lists the models");
        let mut reject = Reject::new(hyper::StatusCode::NOT_FOUND, error).with_code("model_not_found");
        reject.param = Some("model".into());
        reject
    })?;
    engine(&served)?;
    Ok(served)
}

/// Returns the engine of a model that generates texts.
///
/// # Errors
/// Returns an error if it generates none.
pub(super) fn engine(served: &ServedModel) -> Result<&TextEngine, Reject> {
    served.texts.as_ref().ok_or_else(|| {
        let name = served.name.escape_debug();
        Reject::param("model", format!("the model `{name}` does not generate text: it is not a decoder, or its tokenizer cannot be read"))
    })
}

impl GenerationPlan {
    /// Reserves what the answers need, and starts them.
    ///
    /// # Errors
    /// Returns an error if a prompt is empty or has an unknown token, if a prompt with its answer is longer than the context, or if the
    /// server has too little memory for it, now or even when idle.
    pub(super) fn start(self, state: &ServerState, engine: &TextEngine) -> Result<Generation, Reject> {
        let text = &*engine.model;
        let per_prompt = self.sampling.choices;
        let choices = self.prompts.len().saturating_mul(per_prompt);
        if choices > engine.limit() {
            let error = format!(
                "the request asks for {choices} answers, and {} are allowed at a time",
                engine.limit()
            );
            return Err(Reject::param("n", error));
        }
        let mut lengths = Vec::with_capacity(self.prompts.len());
        for prompt in &self.prompts {
            lengths.push(self.answer_length(text, &prompt.tokens)?);
        }
        let need = |(prompt, length): (&PromptPlan, &usize)| {
            let tokens = prompt.tokens.len();
            let most = tokens.saturating_add(*length);
            let held = TextModel::granted_at(tokens).min(most);
            Need { held: text.cache_bytes(held), most: text.cache_bytes(most) }
        };
        let needs: Vec<Need> = self.prompts.iter().zip(&lengths).map(need).collect();
        let allowed = text.memory.min(state.limits.memory);
        if !is_safe(allowed, needs.iter().flat_map(|need| std::iter::repeat_n(*need, per_prompt))) {
            let sum = |sum: usize, need: &Need| sum.saturating_add(need.held.saturating_mul(per_prompt));
            let most = needs.iter().map(|need| need.most).max().unwrap_or(0);
            let total = needs.iter().fold(0_usize, sum).max(most);
            let error = format!("the request needs {total} bytes of memory, and {allowed} are allowed");
            return Err(Reject::param(self.max_tokens_param, error));
        }
        let busy = || {
            let error =
                format!("{} answers are already generated or wait; try again later", engine.running());
            Reject::new(hyper::StatusCode::SERVICE_UNAVAILABLE, error)
        };
        let mut places = engine.places(choices).ok_or_else(busy)?.into_iter();
        let (sender, events) = mpsc::channel(choices.saturating_mul(4).saturating_add(32));
        let (mut requests, mut number) = (Vec::new(), 0_usize);
        let mut usage = Usage::default();
        for ((prompt, max_tokens), need) in self.prompts.into_iter().zip(lengths).zip(needs) {
            usage.add_prompt(prompt.tokens.len());
            let mut choices = Vec::with_capacity(per_prompt);
            for place in places.by_ref().take(per_prompt) {
                let memory = state.budget.claim(need).ok_or_else(|| Reject::no_memory(&state.limits))?;
                let choice = self.sampling.choice(number);
                choices.push(ChoiceOptions { number, choice, memory, _place: place });
                number = number.saturating_add(1);
            }
            requests.push(PromptRequest {
                tokens: prompt.tokens.into(),
                echo: prompt.echo,
                max_tokens,
                changes: self.sampling.changes.clone(),
                stops: self.sampling.stops.clone(),
                shown: self.shown.clone(),
                scores: self.scores,
                grammar: self.grammar.clone(),
                choices,
                events: sender.clone(),
            });
        }
        for request in requests {
            engine.submit(request);
        }
        Ok(Generation { events, first: None, choices, unfinished: choices, usage })
    }

    /// Returns the most tokens of the answer to a prompt.
    fn answer_length(&self, text: &TextModel, prompt: &[u32]) -> Result<usize, Reject> {
        let vocab = text.forward.vocab();
        if prompt.is_empty() {
            return Err(Reject::param("prompt", "the prompt has no tokens"));
        }
        if let Some(token) =
            prompt.iter().find(|token| usize::try_from(**token).map_or(true, |id| id >= vocab))
        {
            return Err(Reject::param(
                "prompt",
                format!("the prompt has the token {token}, expected ids below {vocab}"),
            ));
        }
        let (used, context) = (prompt.len(), text.context());
        let rest = context.checked_sub(used);
        let wanted = self.max_tokens.map(|tokens| usize::try_from(tokens).unwrap_or(usize::MAX));
        match (rest, wanted) {
            (Some(rest), None) if rest > 0 => {
                let shared = text.shared_context().saturating_sub(used);
                Ok(if shared > 0 { shared.min(rest) } else { rest })
            }
            (Some(rest), Some(wanted)) if wanted <= rest => Ok(wanted),
            _ => {
                let wanted = wanted.unwrap_or(1);
                let asked = used.saturating_add(wanted);
                let error = format!(
                    "the context of this model has {context} tokens, and the request asks for {asked}: {used} of the prompt and \
                     {wanted} of the answer"
                );
                Err(Reject::param(self.max_tokens_param, error).with_code("context_length_exceeded"))
            }
        }
    }
}

impl Generation {
    /// Waits for the first event, so that an error is known before the response starts.
    ///
    /// # Errors
    /// Returns an error if the model failed.
    pub(super) async fn wait(&mut self) -> Result<(), Reject> {
        match self.events.recv().await {
            Some(TextEvent::Failed(error)) => Err(Reject::internal(error)),
            Some(event) => {
                self.first = Some(event);
                Ok(())
            }
            None => Err(ended()),
        }
    }

    /// Returns the next event; `None` after the last choice has ended.
    ///
    /// # Errors
    /// Returns an error if the model failed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<TextEvent>, Reject>> {
        if self.unfinished == 0 {
            return Poll::Ready(Ok(None));
        }
        let event = match self.first.take() {
            Some(event) => Some(event),
            None => std::task::ready!(self.events.poll_recv(cx)),
        };
        Poll::Ready(match event {
            Some(TextEvent::Failed(error)) => {
                self.unfinished = 0;
                Err(Reject::internal(error))
            }
            Some(event) => {
                if let TextEvent::End { tokens, .. } = &event {
                    self.unfinished = self.unfinished.saturating_sub(1);
                    self.usage.add_answer(*tokens);
                }
                Ok(Some(event))
            }
            None => Err(ended()),
        })
    }

    /// Waits for all answers.
    ///
    /// # Errors
    /// Returns an error if the model failed.
    pub(super) async fn collect(&mut self) -> Result<Vec<Answer>, Reject> {
        let mut answers = vec![Answer::default(); self.choices];
        while let Some(event) = std::future::poll_fn(|cx| self.poll(cx)).await? {
            match event {
                TextEvent::Text { choice, text, scores } => {
                    if let Some(answer) = answers.get_mut(choice) {
                        answer.text.push_str(&text);
                        answer.scores.extend(scores);
                    }
                }
                TextEvent::End { choice, finish, .. } => {
                    if let Some(answer) = answers.get_mut(choice) {
                        answer.finish = Some(finish);
                    }
                }
                TextEvent::Failed(_) => {}
            }
        }
        Ok(answers)
    }
}

fn ended() -> Reject {
    Reject::internal("the model has ended")
}

impl Usage {
    fn add_prompt(&mut self, tokens: usize) {
        self.prompt_tokens = self.prompt_tokens.saturating_add(tokens);
        self.total_tokens = self.total_tokens.saturating_add(tokens);
    }

    fn add_answer(&mut self, tokens: usize) {
        self.completion_tokens = self.completion_tokens.saturating_add(tokens);
        self.total_tokens = self.total_tokens.saturating_add(tokens);
    }
}

/// Returns the tokens of prompts that are texts.
///
/// # Errors
/// Returns an error if the tokenizer does not take a text.
pub(super) fn encode(text: &TextModel, prompt: &str) -> Result<Vec<u32>, Reject> {
    text.tokenizer.encode(prompt).map_err(|error| Reject::param("prompt", error.to_string()))
}

/// Returns the member or its error.
pub(super) fn required<T>(name: &str, member: Option<T>) -> Result<T, Reject> {
    member.ok_or_else(|| missing(name))
}
