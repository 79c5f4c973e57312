//! OpenAI's protocol: models, completions, chats and responses, below `/v1`; and Triton's `generate`, which asks for the same.
//!
//! Facts: OpenAI's API reference, and what the clients `openai` for Python and JavaScript and lm-eval's `local-completions` send.

mod chat;
mod common;
mod completions;
mod error;
mod fields;
mod form;
mod generate;
mod generation;
mod logprobs;
mod models;
mod prompt;
mod response_form;
mod response_format;
mod response_input;
mod responses;
mod tools;

use std::sync::Arc;

use hyper::http::request::Parts;

use crate::answer::RouteResult;
use crate::body::Upload;
use crate::route::OpenAiRoute;
use crate::state::ServerState;

pub(crate) use error::error_response;
pub(crate) use generate::answer as generate;

/// Answers a request below `/v1`.
pub(crate) async fn answer(
    state: &Arc<ServerState>,
    parts: &Parts,
    upload: &mut Upload,
    route: OpenAiRoute,
) -> RouteResult {
    match route {
        OpenAiRoute::Models => models::list(state),
        OpenAiRoute::Model(name) => models::show(state, &name),
        OpenAiRoute::Completions => completions::answer(state, parts, upload).await,
        OpenAiRoute::Chat => chat::answer(state, parts, upload).await,
        OpenAiRoute::Responses => responses::answer(state, parts, upload).await,
    }
}
