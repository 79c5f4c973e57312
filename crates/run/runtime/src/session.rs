//! Feeds tokens to a decoder step by step, keeping its KV cache.

use std::sync::Arc;

use byte_source::Observer;
use forward::{ForwardModel, KvCache, LogitPositions};

use crate::{Problem, Result, Runnable, RunnableKind};

/// Sequence of tokens that grows, with the model's KV cache for it.
#[derive(Debug)]
pub struct Session {
    model: Arc<ForwardModel>,
    cache: KvCache,
}

impl Runnable {
    /// Starts a session of a decoder with an empty KV cache.
    ///
    /// # Errors
    /// Returns an error if the carton holds weights, or if the cache cannot be allocated.
    pub fn session(&self) -> Result<Session> {
        let RunnableKind::Decoder(model) = self.kind() else {
            return Err(Problem::NotAModel { path: self.path().to_owned() }.into());
        };
        Ok(Session { model: Arc::clone(model), cache: model.cache(1)? })
    }
}

impl Session {
    /// Returns the number of tokens fed so far.
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Returns true if no tokens were fed yet.
    pub fn is_empty(&self) -> bool {
        self.cache.is_empty()
    }

    /// Feeds tokens that follow the previous ones, and returns the logits of the next token, one for each entry of the
    /// vocabulary. If the call fails or is stopped, the session keeps its previous tokens.
    ///
    /// # Errors
    /// Returns an error if `tokens` is empty, a token is not in the vocabulary, memory runs out, or `observer` stops the
    /// work.
    pub fn feed(&mut self, tokens: &[u32], observer: &dyn Observer) -> Result<Vec<f32>> {
        let tokens: Vec<i64> = tokens.iter().copied().map(i64::from).collect();
        self.model.forward(&tokens, 1, &mut self.cache, LogitPositions::Last, observer)
    }
}
