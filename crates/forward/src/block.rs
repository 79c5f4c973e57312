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
    pub(crate) pool: &'w Pool,
    pub(crate) queries: Queries,
    pub(crate) angles: Angles<T>,
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
        let rows = product(&[queries.batch, queries.count])?;
        let keys = product(&[rows, queries.kv_heads, queries.head_dim])?;
        let heads = product(&[keys, queries.group])?;
        let (dim, hidden) = (product(&[rows, dim])?, product(&[rows, hidden])?);
        Ok(Self {
            pool,
            queries,
            angles,
            normed: zeros(dim)?,
            added: zeros(dim)?,
            q: zeros(heads)?,
            k: zeros(keys)?,
            v: zeros(keys)?,
            heads: zeros(heads)?,
            tiles: queries.room()?,
            gate: zeros(hidden)?,
            up: zeros(hidden)?,
        })
    }

    fn rows(&self) -> usize {
        self.queries.batch.saturating_mul(self.queries.count)
    }
}

impl<T: Real> Attention<T> {
    /// Adds to the rows `h` [batch, count, dim] what the layer with this number computes from them, and to the cache their
    /// keys and values, for which there is room.
    pub(crate) fn apply(&self, number: usize, h: &mut [T], cache: &mut Tokens<T>, work: &mut Work<'_, T>) {
        let (pool, rows, sizes) = (work.pool, work.rows(), work.queries);
        self.norm.apply(pool, h, &mut work.normed);
        for (linear, out) in
            [(&self.queries, &mut work.q), (&self.keys, &mut work.k), (&self.values, &mut work.v)]
        {
            linear.apply(pool, &work.normed, rows, out);
        }
        let kv_width = sizes.kv_heads.saturating_mul(sizes.head_dim);
        let rotated = [(&mut work.q, kv_width.saturating_mul(sizes.group)), (&mut work.k, kv_width)];
        for (heads, width) in rotated {
            let angles = &work.angles;
            share_rows(pool, heads, width, |row, heads| {
                angles.rotate(row.checked_rem(sizes.count).unwrap_or(0), heads);
            });
        }
        sizes.remember(pool, &work.k, &work.v, cache.layer_mut(number));
        let heads = cache.layer(number);
        sizes.attend(pool, heads, self.window, &work.q, &mut work.tiles, &mut work.heads);
        self.output.apply(pool, &work.heads, rows, &mut work.added);
        T::run(Add { x: h, y: &work.added });
    }
}

impl<T: Real> FeedForward<T> {
    /// Adds to the rows `h` what is computed from them.
    pub(crate) fn apply(&self, h: &mut [T], work: &mut Work<'_, T>) {
        let (pool, rows) = (work.pool, work.rows());
        self.norm.apply(pool, h, &mut work.normed);
        self.gate.apply(pool, &work.normed, rows, &mut work.gate);
        self.up.apply(pool, &work.normed, rows, &mut work.up);
        let parts = work.gate.chunks_mut(WORTH_SHARING).zip(work.up.chunks(WORTH_SHARING));
        pool.for_each(parts.collect(), |(gate, up)| T::run(Gate { gate, up }));
        self.down.apply(pool, &work.gate, rows, &mut work.added);
        T::run(Add { x: h, y: &work.added });
    }
}
