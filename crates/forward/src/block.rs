//! A layer: attention and the feed-forward part, each after a norm and added to what came in.
//!
//! Facts: the loop over layers in `forward` of the TorchScript text. What differs from model to model is decided here, from
//! the facts in [`Decoder`](decoder::Decoder).

use crate::Result;
use crate::attention::Queries;
use crate::cache::Tokens;
use crate::kernel::Pool;
use crate::linear::Linear;
use crate::memory::{product, zeros};
use crate::norm::Norm;
use crate::number::Real;
use crate::positions::Angles;
use crate::sharing::{WORTH_SHARING, share_rows};
use crate::vector::{Add, Gate};

/// The weights of a layer.
#[derive(Debug)]
pub(crate) struct Layer<T> {
    pub(crate) attention: Attention<T>,
    pub(crate) feed_forward: FeedForward<T>,
}

/// Attention and its norm.
#[derive(Debug)]
pub(crate) struct Attention<T> {
    pub(crate) norm: Norm<T>,
    pub(crate) queries: Linear<T>,
    pub(crate) keys: Linear<T>,
    pub(crate) values: Linear<T>,
    pub(crate) output: Linear<T>,
    /// The number of tokens that a token sees; `None` means all.
    pub(crate) window: Option<usize>,
}

/// The feed-forward part and its norm.
#[derive(Debug)]
pub(crate) struct FeedForward<T> {
    pub(crate) norm: Norm<T>,
    pub(crate) gate: Linear<T>,
    pub(crate) up: Linear<T>,
    pub(crate) down: Linear<T>,
}

/// What all layers of one call use: sizes, threads and room for results.
pub(crate) struct Work<'w, T> {
    pool: &'w Pool,
    /// The width of the model.
    dim: usize,
    /// Those of all new tokens.
    queries: Queries,
    angles: Angles<T>,
    /// Rows of the model's width: a norm's result, then what is added to the rows.
    normed: Vec<T>,
    added: Vec<T>,
    q: Vec<T>,
    k: Vec<T>,
    v: Vec<T>,
    heads: Vec<T>,
    tiles: Vec<T>,
    gate: Vec<T>,
    up: Vec<T>,
}

impl<'w, T: Real> Work<'w, T> {
    /// Room for the rows of `queries` in a model of these widths.
    ///
    /// # Errors
    /// When it does not fit in memory.
    pub(crate) fn new(
        pool: &'w Pool,
        queries: Queries,
        angles: Angles<T>,
        dim: usize,
        hidden: usize,
    ) -> Result<Self> {
        let rows = queries.rows();
        let keys = product(&[rows, queries.kv_heads, queries.head_dim])?;
        let heads = product(&[keys, queries.group])?;
        let (numbers, hidden) = (product(&[rows, dim])?, product(&[rows, hidden])?);
        Ok(Self {
            pool,
            dim,
            queries,
            angles,
            normed: zeros(numbers)?,
            added: zeros(numbers)?,
            q: zeros(heads)?,
            k: zeros(keys)?,
            v: zeros(keys)?,
            heads: zeros(heads)?,
            tiles: zeros(queries.room()?)?,
            gate: zeros(hidden)?,
            up: zeros(hidden)?,
        })
    }
}

impl<T: Real> Layer<T> {
    /// Adds to the rows `h` [batch, count, dim] what the layer with this number computes from them, and to the cache their
    /// keys and values, for which there is room. Only the last `wanted` rows of each sequence are computed, and the others
    /// removed.
    pub(crate) fn apply(
        &self,
        number: usize,
        wanted: usize,
        h: &mut Vec<T>,
        cache: &mut Tokens<T>,
        work: &mut Work<'_, T>,
    ) {
        self.attention.apply(number, wanted, h, cache, work);
        self.feed_forward.apply(h, work);
    }
}

impl<T: Real> Attention<T> {
    fn apply(
        &self,
        number: usize,
        wanted: usize,
        h: &mut Vec<T>,
        cache: &mut Tokens<T>,
        work: &mut Work<'_, T>,
    ) {
        let Work { pool, dim, queries: all, angles, normed, added, q, k, v, heads, tiles, .. } = work;
        let (pool, all, some) = (*pool, *all, all.last(wanted));
        self.norm.apply(pool, h, normed);
        let kv_width = all.kv_heads.saturating_mul(all.head_dim);
        let width = kv_width.saturating_mul(all.group);
        let keys = [(&self.keys, &normed[..], &mut k[..]), (&self.values, &normed[..], &mut v[..])];
        let (q, heads) = (first(q, some.rows(), width), first(heads, some.rows(), width));
        let of_queries = if some.count == all.count {
            &normed[..]
        } else {
            keep_last(h, all, some, *dim);
            let last = first(added, some.rows(), *dim);
            let sequences = normed.chunks_exact(all.count.saturating_mul(*dim).max(1));
            let kept = last.chunks_exact_mut(some.count.saturating_mul(*dim).max(1));
            kept.zip(sequences).for_each(|(kept, all)| {
                let start = all.len().saturating_sub(kept.len());
                kept.copy_from_slice(all.get(start..).unwrap_or_default());
            });
            last
        };
        let queries = [(&self.queries, of_queries, &mut *q)];
        Linear::apply_all(pool, queries.into_iter().chain(keys));
        let (count, first_row) = (all.count, all.count.saturating_sub(some.count));
        share_rows(pool, k, kv_width, |row, heads| {
            angles.rotate(row.checked_rem(count).unwrap_or(0), heads);
        });
        share_rows(pool, q, width, |row, heads| {
            angles.rotate(first_row.saturating_add(row.checked_rem(some.count).unwrap_or(0)), heads);
        });
        all.remember(pool, k, v, cache.layer_mut(number));
        if some.count == 0 {
            return;
        }
        some.attend(pool, cache.layer(number), self.window, q, tiles, heads);
        let added = first(added, some.rows(), *dim);
        Linear::apply_all(pool, [(&self.output, &*heads, &mut *added)]);
        share_add(pool, h, added);
    }
}

impl<T: Real> FeedForward<T> {
    /// Adds to the rows `h` what is computed from them.
    fn apply(&self, h: &mut [T], work: &mut Work<'_, T>) {
        let Work { pool, dim, normed, added, gate, up, .. } = work;
        let rows = h.len().checked_div(*dim).unwrap_or(0);
        let hidden = self.down.matrix.cols();
        let (normed, added) = (first(normed, rows, *dim), first(added, rows, *dim));
        let (gate, up) = (first(gate, rows, hidden), first(up, rows, hidden));
        self.norm.apply(pool, h, normed);
        Linear::apply_all(pool, [(&self.gate, &*normed, &mut *gate), (&self.up, &*normed, &mut *up)]);
        let parts = gate.chunks_mut(WORTH_SHARING).zip(up.chunks(WORTH_SHARING));
        pool.for_each(parts, |(gate, up)| T::run(Gate { gate, up }));
        Linear::apply_all(pool, [(&self.down, &*gate, &mut *added)]);
        share_add(pool, h, added);
    }
}

/// The room for this many rows.
fn first<T>(room: &mut [T], rows: usize, width: usize) -> &mut [T] {
    let len = rows.saturating_mul(width).min(room.len());
    let (first, _) = room.split_at_mut(len);
    first
}

/// Keeps the last rows of each sequence.
fn keep_last<T: Copy>(h: &mut Vec<T>, all: Queries, some: Queries, dim: usize) {
    let (whole, kept) = (all.count.saturating_mul(dim).max(1), some.count.saturating_mul(dim));
    let sequences = h.len().checked_div(whole).unwrap_or(0);
    for sequence in 0..sequences {
        let end = sequence.saturating_add(1).saturating_mul(whole);
        h.copy_within(end.saturating_sub(kept)..end, sequence.saturating_mul(kept));
    }
    h.truncate(sequences.saturating_mul(kept));
}

/// `x += y`.
fn share_add<T: Real>(pool: &Pool, x: &mut [T], y: &[T]) {
    let parts = x.chunks_mut(WORTH_SHARING).zip(y.chunks(WORTH_SHARING));
    pool.for_each(parts, |(x, y)| T::run(Add { x, y }));
}
