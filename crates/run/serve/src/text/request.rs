//! Requests to the engine.

use std::sync::Arc;

use generate::{LogitChanges, TokenChoice};
use tokio::sync::mpsc;

use super::{AnswerGrammar, Place, TextEvent};
use crate::budget::Claim;

/// One way in which a prompt is continued.
#[derive(Debug)]
pub(crate) struct ChoiceOptions {
    /// Its number among all choices of the request.
    pub(crate) number: usize,
    pub(crate) choice: TokenChoice,
    /// Memory of its keys and values, and its place among all choices; both are free again when it ends.
    pub(crate) memory: Claim,
    pub(crate) _place: Place,
}

/// Prompt, and the ways in which it is continued.
#[derive(Debug)]
pub(crate) struct PromptRequest {
    pub(crate) tokens: Arc<[u32]>,
    /// Text before the answer, if it is a part of the answer.
    pub(crate) echo: Option<String>,
    pub(crate) max_tokens: usize,
    pub(crate) changes: LogitChanges,
    pub(crate) stops: Vec<String>,
    /// Special tokens that are a part of the text.
    pub(crate) shown: Vec<u32>,
    /// Grammar of an answer; `None` for any text.
    pub(crate) grammar: Option<AnswerGrammar>,
    /// Number of most probable tokens to return with each token; `None` for no scores.
    pub(crate) scores: Option<usize>,
    pub(crate) choices: Vec<ChoiceOptions>,
    pub(crate) events: mpsc::Sender<TextEvent>,
}

impl PromptRequest {
    /// Returns true if the scores of the prompt's tokens are asked for.
    pub(crate) fn scores_prompt(&self) -> bool {
        self.echo.is_some() && self.scores.is_some()
    }
}
