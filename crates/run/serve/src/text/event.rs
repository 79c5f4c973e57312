//! Events of a text while it grows.

/// Reason for which a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Finish {
    /// A stop token or a stop text.
    Stop,
    /// The number of tokens that the request allows.
    Length,
}

/// Probability of a token, and of the most probable ones in its place.
#[derive(Clone, Debug)]
pub(crate) struct TokenScore {
    pub(crate) bytes: Vec<u8>,
    /// Logarithm of the probability; `None` for the first token of a prompt.
    pub(crate) logprob: Option<f64>,
    pub(crate) top: Vec<(Vec<u8>, f64)>,
    /// Number of characters before the token in the text.
    pub(crate) offset: usize,
}

/// Event of one choice of a request.
#[derive(Clone, Debug)]
pub(crate) enum TextEvent {
    /// More text, with the tokens that it ends with; either may be empty.
    Text { choice: usize, text: String, scores: Vec<TokenScore> },
    /// The end of a choice, with the number of its tokens.
    End { choice: usize, finish: Finish, tokens: usize },
    /// The model failed, for all choices of its prompt.
    Failed(String),
}
