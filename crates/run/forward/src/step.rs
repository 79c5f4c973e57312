//! Steps of several sequences, each with a cache of its own, that share the reading of the weights.

use byte_source::Observer;

use crate::cache::{CachedTokens, KvCache, TypedCache};
use crate::memory::{checked_product, zeros};
use crate::model::{ForwardModel, Network, TypedNetwork};
use crate::number::Real;
use crate::pass::LogitsBuffer;
use crate::sequence_part::SequencePart;
use crate::{Problem, Result};

impl ForwardModel {
    /// Computes the logits of one token for each of several sequences, which share the reading of the weights: [sequences, vocab] in
    /// C order. Token `n` follows the tokens in cache `n`, which has one sequence, and is added to it. The logits of a sequence are the
    /// same, bit for bit, whatever the others are. If the call fails or is stopped, the caches keep only their earlier tokens.
    ///
    /// # Errors
    /// When there are no tokens or not as many as caches, an id is not below [`vocab`](Self::vocab), a cache is of another model or has
    /// several sequences, a result does not fit in memory, or `observer` stops the work.
    pub fn step(
        &self,
        tokens: &[i64],
        caches: &mut [&mut KvCache],
        observer: &dyn Observer,
    ) -> Result<Vec<f32>> {
        if tokens.len() != caches.len() {
            return Err(Problem::Tokens { found: tokens.len(), batch: caches.len() }.into());
        }
        let ids = self.embedding_ids(tokens, caches.len())?;
        match &self.network {
            Network::F32(net) => {
                let typed = caches.iter_mut().map(|cache| match &mut cache.0 {
                    TypedCache::F32(cache) => Some(cache),
                    TypedCache::F64(_) => None,
                });
                self.run_step(net, &ids, typed.collect(), observer)
            }
            Network::F64(net) => {
                let typed = caches.iter_mut().map(|cache| match &mut cache.0 {
                    TypedCache::F64(cache) => Some(cache),
                    TypedCache::F32(_) => None,
                });
                self.run_step(net, &ids, typed.collect(), observer)
            }
        }
    }

    fn run_step<T: Real>(
        &self,
        net: &TypedNetwork<T>,
        ids: &[usize],
        caches: Option<Vec<&mut CachedTokens<T>>>,
        observer: &dyn Observer,
    ) -> Result<Vec<f32>> {
        let mut caches = caches.ok_or(Problem::CacheMismatch)?;
        let mut parts = Vec::with_capacity(caches.len());
        for cache in &mut caches {
            if cache.sizes() != self.sizes(1) {
                return Err(Problem::CacheMismatch.into());
            }
            let total = cache.len().checked_add(1).ok_or(Problem::Memory { nbytes: u64::MAX })?;
            net.weights.positions.as_ref().map_or(Ok(()), |positions| positions.check(total))?;
            cache.reserve(total)?;
            parts.push(SequencePart { batch: 1, count: 1, total });
        }
        let out = zeros(checked_product(&[ids.len(), self.dims.vocab])?)?;
        let mut logits = LogitsBuffer { returned: 1, of_piece: 0, out };
        self.pool.run(|| {
            let h = self.run_parts(net, &self.step_pool, ids, &parts, &mut caches, 1, observer)?;
            self.write_logits(net, &self.step_pool, &h, 1, 0, &mut logits)
        })?;
        for cache in caches {
            cache.advance(1);
        }
        Ok(logits.out)
    }
}
