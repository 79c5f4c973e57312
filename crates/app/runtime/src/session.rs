//! One text that grows: the tokens that a model has seen, and the logits of what may follow.

use std::sync::Arc;

use byte_source::Observer;
use forward::{Cache, Model, Rows};

use crate::{Error, Kind, Result, Runnable};

/// One text that grows.
#[derive(Debug)]
pub struct Session {
    model: Arc<Model>,
    cache: Cache,
}

impl Runnable {
    /// A session of a model that has seen no tokens yet.
    ///
    /// # Errors
    /// When the carton holds weights, or there is no memory for it.
    pub fn session(&self) -> Result<Session> {
        let Kind::Decoder(model) = self.kind() else {
            return Err(Error::NotAModel { path: self.path().to_owned() });
        };
        Ok(Session { model: Arc::clone(model), cache: model.cache(1)? })
    }
}

impl Session {
    /// The number of tokens that the model has seen.
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Whether the model has seen no tokens yet.
    pub fn is_empty(&self) -> bool {
        self.cache.is_empty()
    }

    /// Feeds tokens that follow those before, and returns the logits of the one after them, one for each token that the
    /// model knows. If it fails or is stopped, the session has the tokens that it had.
    ///
    /// # Errors
    /// When there are no tokens, the model does not know one, there is no memory, or `observer` stops the work.
    pub fn feed(&mut self, tokens: &[u32], observer: &dyn Observer) -> Result<Vec<f32>> {
        let tokens: Vec<i64> = tokens.iter().copied().map(i64::from).collect();
        Ok(self.model.forward(&tokens, 1, &mut self.cache, Rows::Last, observer)?)
    }
}
