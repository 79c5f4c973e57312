//! Probabilities of tokens, as completions and chats write them.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::text::TokenScore;

/// Stands for the logarithm of 0, which JSON has not.
const LEAST: f64 = -9999.0;

/// `logprobs` of a completion.
#[derive(Debug, Serialize)]
pub(super) struct CompletionLogprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f64>>,
    top_logprobs: Vec<Option<Map<String, Value>>>,
    text_offset: Vec<usize>,
}

impl CompletionLogprobs {
    pub(super) fn new(scores: &[TokenScore]) -> Self {
        let top = |score: &TokenScore| {
            let chosen = score.logprob?;
            let mut top = Map::new();
            // Two tokens may have the same text; the more probable one counts. The chosen token is always there.
            for (bytes, logprob) in
                score.top.iter().map(|(bytes, logprob)| (bytes, *logprob)).chain([(&score.bytes, chosen)])
            {
                top.entry(token_text(bytes)).or_insert_with(|| finite(logprob).into());
            }
            Some(top)
        };
        Self {
            tokens: scores.iter().map(|score| token_text(&score.bytes)).collect(),
            token_logprobs: scores.iter().map(|score| score.logprob.map(finite)).collect(),
            top_logprobs: scores.iter().map(top).collect(),
            text_offset: scores.iter().map(|score| score.offset).collect(),
        }
    }
}

fn finite(logprob: f64) -> f64 {
    logprob.max(LEAST)
}

/// `logprobs` of a chat's answer.
#[derive(Debug, Serialize)]
pub(super) struct ChatLogprobs {
    content: Vec<ScoredToken>,
    refusal: (),
}

#[derive(Debug, Serialize)]
struct ScoredToken {
    #[serde(flatten)]
    token: TokenLogprob,
    top_logprobs: Vec<TokenLogprob>,
}

#[derive(Debug, Serialize)]
struct TokenLogprob {
    token: String,
    logprob: f64,
    bytes: Vec<u8>,
}

impl TokenLogprob {
    fn new(bytes: &[u8], logprob: f64) -> Self {
        Self {
            token: String::from_utf8_lossy(bytes).into_owned(),
            logprob: finite(logprob),
            bytes: bytes.to_vec(),
        }
    }
}

impl ChatLogprobs {
    pub(super) fn new(scores: &[TokenScore]) -> Self {
        let with_top = |score: &TokenScore| ScoredToken {
            token: TokenLogprob::new(&score.bytes, score.logprob.unwrap_or_default()),
            top_logprobs: score
                .top
                .iter()
                .map(|(bytes, logprob)| TokenLogprob::new(bytes, *logprob))
                .collect(),
        };
        Self { content: scores.iter().map(with_top).collect(), refusal: () }
    }
}

/// Returns the text of a token; its bytes if they are not whole characters.
fn token_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => format!("bytes:{}", bytes.escape_ascii()),
    }
}
