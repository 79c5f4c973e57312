//! Decoder layer: attention and the feed-forward part, with their norms and residual additions.
//!
//! Facts: [`decoder::Block`], whose flags hold the differences between models; the loop over layers in `forward` of the
//! TorchScript text.

use decoder::QueryScale;

use crate::activation::LayerActivation;
use crate::attention::{Queries, ScoreTransform};
use crate::cache::{CachedTokens, Head};
use crate::delta_net::DeltaNet;
use crate::dims::DecoderDims;
use crate::experts::Experts;
use crate::feed_forward::{FeedForward, FeedForwardRows};
use crate::kernel::Pool;
use crate::layer_inputs::{InputRows, LayerInput};
use crate::linear::Linear;
use crate::memory::{checked_product, zeros};
use crate::mixed_heads::{CachePlace, HeadSizes};
use crate::norm::Norm;
use crate::number::Real;
use crate::positions::Angles;
use crate::projections::Projections;
use crate::query_scale::scale_queries;
use crate::sharing::{PARALLEL_ELEMENTS_MIN, share_rows};
use crate::vector::AddScaled;
use crate::{Problem, Result};

#[derive(Debug)]
pub(crate) struct Layer<T> {
    pub(crate) mixer: Mixer<T>,
    pub(crate) attention_norms: Norms<T>,
    pub(crate) part: FeedForwardPart<T>,
    pub(crate) part_norms: Norms<T>,
    /// True if the feed-forward part reads the same rows as attention, normalised by a norm of its own if it has one.
    pub(crate) is_parallel: bool,
    pub(crate) activation: LayerActivation,
    /// Factor of the output of each part before it is added to the rows.
    pub(crate) residual: T,
    pub(crate) input: Option<LayerInput<T>>,
    /// Factor of the rows at the end of the layer.
    pub(crate) factor: Option<T>,
}

/// Part of a layer in which tokens read earlier ones.
#[derive(Debug)]
pub(crate) enum Mixer<T> {
    Attention(Box<Attention<T>>),
    DeltaNet(Box<DeltaNet<T>>),
}

#[derive(Debug)]
pub(crate) struct Norms<T> {
    pub(crate) before: Option<Norm<T>>,
    pub(crate) after: Option<Norm<T>>,
    /// True if the output of the part is added to the normalised rows.
    pub(crate) replaces_rows: bool,
}

#[derive(Debug)]
pub(crate) struct Attention<T> {
    /// Place of the keys and values, which may be those of an earlier layer.
    pub(crate) place: CachePlace,
    pub(crate) heads: HeadSizes,
    pub(crate) projections: Projections<T>,
    pub(crate) output: Linear<T>,
    pub(crate) query_norm: Option<Norm<T>>,
    pub(crate) key_norm: Option<Norm<T>>,
    pub(crate) value_norm: Option<Norm<T>>,
    /// True if these norms follow the rotary embedding.
    pub(crate) has_late_norms: bool,
    /// Largest absolute value of queries, keys and values.
    pub(crate) limit: Option<T>,
    pub(crate) query_scale: Option<QueryScale>,
    /// Index of the rotary embedding; `None` for no positions.
    pub(crate) rope: Option<usize>,
    pub(crate) scores: ScoreTransform<T>,
}

#[derive(Debug)]
pub(crate) enum FeedForwardPart<T> {
    FeedForward(Box<FeedForward<T>>),
    Experts(Box<Experts<T>>),
}

/// State that all layers of one call share: sizes, threads and buffers.
pub(crate) struct LayerState<'w, T> {
    pool: &'w Pool,
    dim: usize,
    /// Sizes of all rows together; their positions are those of the parts.
    queries: Queries,
    parts: Vec<BatchPart<T>>,
    /// Rows of the model's width: the input of a part, then (`added`) the output that is added to the rows.
    normed: Vec<T>,
    added: Vec<T>,
    q: Vec<T>,
    k: Vec<T>,
    v: Vec<T>,
    heads: Vec<T>,
    tiles: Vec<T>,
    hidden: Vec<T>,
    /// Inputs of all layers, if they have any.
    inputs: Option<InputRows<T>>,
}

/// Rows of a call whose tokens are in one cache.
pub(crate) struct BatchPart<T> {
    pub(crate) queries: Queries,
    /// Angles of each rotary embedding.
    pub(crate) angles: Vec<Angles<T>>,
}

impl<'w, T: Real> LayerState<'w, T> {
    /// Allocates the buffers for the rows of `parts`, which have the same number of tokens for each sequence, in a model of these
    /// sizes.
    ///
    /// # Errors
    /// When the buffers do not fit in memory.
    pub(crate) fn new(
        pool: &'w Pool,
        parts: Vec<BatchPart<T>>,
        sizes: &DecoderDims,
        inputs: Option<InputRows<T>>,
    ) -> Result<Self> {
        let DecoderDims { dim, hidden, .. } = *sizes;
        let batch = parts.iter().map(|part| part.queries.batch).sum();
        let first = parts.first().ok_or(Problem::Tokens { found: 0, batch })?;
        let queries = Queries { batch, ..first.queries };
        let rows = queries.rows();
        let (mut keys, mut heads, mut tiles) = (0, 0, 0);
        for of in sizes.head_sizes() {
            let of_keys = checked_product(&[rows, of.kv_heads, of.head_dim])?;
            keys = keys.max(of_keys);
            heads = heads.max(checked_product(&[of_keys, of.group])?);
            tiles = tiles.max(queries.with_heads(of).all_tiles_elements()?);
        }
        let numbers = checked_product(&[rows, dim])?;
        Ok(Self {
            pool,
            dim,
            queries,
            parts,
            normed: zeros(numbers)?,
            added: zeros(numbers)?,
            q: zeros(heads)?,
            k: zeros(keys)?,
            v: zeros(keys)?,
            heads: zeros(heads)?,
            tiles: zeros(tiles)?,
            hidden: zeros(checked_product(&[rows, hidden, 2])?)?,
            inputs,
        })
    }
}

impl<T: Real> Layer<T> {
    /// Adds the output of the layer to the rows `h` [batch, count, dim], and their keys and values to the cache of each part,
    /// which has room for them. Only the last `wanted` rows of each sequence are computed, and the others removed.
    ///
    /// # Errors
    /// When an intermediate result does not fit in memory.
    pub(crate) fn apply(
        &self,
        wanted: usize,
        h: &mut Vec<T>,
        caches: &mut [&mut CachedTokens<T>],
        work: &mut LayerState<'_, T>,
    ) -> Result<()> {
        let (pool, dim, all) = (work.pool, work.dim, work.queries);
        self.attention_norms.normalize_input(pool, h, &mut work.normed);
        match &self.mixer {
            Mixer::Attention(attention) => attention.apply(wanted, caches, work)?,
            Mixer::DeltaNet(delta_net) => {
                let count = all.for_last_tokens(wanted).count;
                let states = caches.iter_mut().filter_map(|cache| cache.states.layer_mut(delta_net.place));
                let out = first_rows(&mut work.added, all.batch * count, dim);
                let normed = &work.normed;
                delta_net.apply(pool, all, count, self.activation, normed, states.collect(), out)?;
            }
        }
        if wanted < all.count {
            keep_last(h, all.count * dim, wanted * dim);
        }
        let rows = h.len() / dim;
        if rows == 0 {
            return Ok(());
        }
        let LayerState { normed, added, hidden, inputs, .. } = work;
        let (normed, out) = (first_rows(normed, rows, dim), first_rows(added, rows, dim));
        if self.is_parallel && self.part_norms.before.is_some() {
            self.part_norms.normalize_input(pool, h, normed);
        }
        self.attention_norms.add_residual(pool, h, out, self.residual);
        if !self.is_parallel {
            self.part_norms.normalize_input(pool, h, normed);
        }
        match &self.part {
            FeedForwardPart::FeedForward(layer) => {
                let hidden = first_rows(hidden, rows, layer.hidden() * 2);
                let rows = FeedForwardRows { layer, x: normed, hidden, out: &mut *out };
                FeedForward::apply_all(pool, self.activation, &mut [rows]);
            }
            FeedForwardPart::Experts(experts) => {
                experts.apply(pool, self.activation, dim, h, normed, out)?;
            }
        }
        self.part_norms.add_residual(pool, h, out, self.residual);
        if let (Some(input), Some(inputs)) = (&self.input, inputs) {
            input.apply(pool, self.activation, wanted.min(all.count), inputs, h, out)?;
        }
        if let Some(factor) = self.factor {
            for x in h.iter_mut() {
                *x *= factor;
            }
        }
        Ok(())
    }
}

impl<T: Real> Norms<T> {
    /// Writes the input of a part to `normed`: the rows `h`, normalised if there is a norm.
    fn normalize_input(&self, pool: &Pool, h: &mut [T], normed: &mut [T]) {
        match &self.before {
            Some(norm) => norm.apply_into(pool, h, normed),
            None => normed.iter_mut().zip(&*h).for_each(|(to, from)| *to = *from),
        }
        if self.replaces_rows {
            h.iter_mut().zip(normed).for_each(|(to, from)| *to = *from);
        }
    }

    /// Adds the output of a part to the rows `h`, normalised if there is a norm, and multiplied by `factor`.
    fn add_residual(&self, pool: &Pool, h: &mut [T], added: &mut [T], factor: T) {
        if let Some(norm) = &self.after {
            norm.apply(pool, norm.part, added);
        }
        let parts = h.chunks_mut(PARALLEL_ELEMENTS_MIN).zip(added.chunks(PARALLEL_ELEMENTS_MIN));
        pool.for_each(parts, |(x, y)| T::run(AddScaled { x, y, factor }));
    }
}

/// Calls `work` with the rows of each part, of which there are the last `wanted` of each sequence.
fn for_parts<T>(
    parts: &[BatchPart<T>],
    heads: HeadSizes,
    width: usize,
    wanted: usize,
    rows: &mut [T],
    mut work: impl FnMut(&BatchPart<T>, Queries, &mut [T]),
) {
    let mut rest = rows;
    for part in parts {
        let some = part.queries.with_heads(heads).for_last_tokens(wanted);
        let (rows, after) = rest.split_at_mut(some.rows() * width);
        rest = after;
        work(part, some, rows);
    }
}

impl<T: Real> Attention<T> {
    fn angles<'p>(&self, part: &'p BatchPart<T>) -> Option<&'p Angles<T>> {
        self.rope.and_then(|rope| part.angles.get(rope))
    }

    fn normalize_heads(&self, pool: &Pool, [(width, q), (kv_width, k)]: [(usize, &mut [T]); 2]) {
        for (norm, width, rows) in [(&self.query_norm, width, q), (&self.key_norm, kv_width, k)] {
            if let Some(norm) = norm {
                norm.apply(pool, width, rows);
            }
        }
    }

    /// Computes attention of the last `wanted` rows of each sequence into `work.added`. If these are not all rows, they
    /// are the first rows of `work.normed` afterwards.
    fn apply(
        &self,
        wanted: usize,
        caches: &mut [&mut CachedTokens<T>],
        work: &mut LayerState<'_, T>,
    ) -> Result<()> {
        let LayerState { pool, dim, queries: all, parts, normed, added, q, k, v, heads, tiles, .. } = work;
        let (pool, all) = (*pool, all.with_heads(self.heads));
        let some = all.for_last_tokens(wanted);
        let kv_width = all.kv_heads * all.head_dim;
        let width = kv_width * all.group;
        let (q, heads) = (first_rows(q, some.rows(), width), first_rows(heads, some.rows(), width));
        let has_keys = !matches!(self.projections, Projections::Queries(_));
        let of_keys = if has_keys { all.rows() } else { 0 };
        let (k, v) = (first_rows(k, of_keys, kv_width), first_rows(v, of_keys, kv_width));
        let last = if some.count == all.count {
            &normed[..]
        } else {
            added.copy_from_slice(normed);
            keep_last(added, all.count * *dim, some.count * *dim);
            &added[..]
        };
        let gates =
            self.projections.apply(pool, all, some.count, [normed, last], [&mut *q, &mut *k, &mut *v])?;
        if some.count < all.count {
            normed.iter_mut().zip(&*added).for_each(|(to, from)| *to = *from);
            added.resize(normed.len(), T::default());
        }
        if let Some(norm) = &self.value_norm {
            norm.apply(pool, kv_width, v);
        }
        if !self.has_late_norms {
            self.normalize_heads(pool, [(width, &mut *q), (kv_width, &mut *k)]);
        }
        if let Some(limit) = self.limit {
            q.iter_mut().chain(&mut *k).chain(&mut *v).for_each(|x| clamp(x, limit));
        }
        let rotate = |rows: &mut [T], width, part: &BatchPart<T>, of: Queries| {
            let Some(angles) = self.angles(part) else { return };
            share_rows(pool, rows, width, |row, heads| {
                angles.rotate(of.past + row % of.count, of.head_dim, heads);
            });
        };
        for_parts(parts, self.heads, width, wanted, q, |part, some, q| rotate(q, width, part, some));
        for_parts(parts, self.heads, kv_width, if has_keys { all.count } else { 0 }, k, |part, all, k| {
            if self.angles(part).is_some_and(|angles| !angles.depend_on_length()) {
                rotate(k, kv_width, part, all);
            }
        });
        if self.has_late_norms {
            self.normalize_heads(pool, [(width, &mut *q), (kv_width, &mut *k)]);
        }
        if let Some(scale) = self.query_scale {
            for_parts(parts, self.heads, width, wanted, q, |_, some, q| scale_queries(scale, some, width, q));
        }
        let mut first = 0;
        for (part, cache) in parts.iter().zip(&mut *caches).filter(|_| has_keys) {
            let queries = part.queries.with_heads(self.heads);
            let range = first..first + queries.rows() * kv_width;
            first = range.end;
            let (keys, values) = (k.get(range.clone()), v.get(range));
            let (keys, values) = (keys.unwrap_or_default(), values.unwrap_or_default());
            queries.store_keys_values(pool, keys, values, cache.layer_mut(self.place));
            if let Some(angles) = self.angles(part).filter(|angles| angles.depend_on_length()) {
                let total = queries.past + queries.count;
                let heads = cache.layer_mut(self.place);
                heads.iter_mut().try_for_each(Head::reserve_rotated)?;
                pool.for_each(heads, |head| angles.rotate_keys(head, total));
            }
        }
        if some.count == 0 {
            return Ok(());
        }
        if let ([part], [cache]) = (&parts[..], &mut *caches) {
            let some = part.queries.with_heads(self.heads).for_last_tokens(wanted);
            some.attend(Some(pool), cache.layer(self.place), &self.scores, q, tiles, heads);
        } else {
            let rows = parts.iter().map(|part| part.queries.with_heads(self.heads).for_last_tokens(wanted));
            let tiles_of = tiles.len() / all.batch;
            let jobs = rows.zip(caches).zip(q.chunks(some.count * width)).zip(tiles.chunks_mut(tiles_of));
            let jobs = jobs.zip(heads.chunks_mut(some.count * width));
            pool.for_each(jobs, |((((some, cache), q), tiles), heads)| {
                some.attend(None, cache.layer(self.place), &self.scores, q, tiles, heads);
            });
        }
        let factors = heads.iter_mut().zip(&gates);
        factors.for_each(|(x, gate)| *x = *x / (T::ONE + (-*gate).exp()));
        Linear::apply_all(pool, [(&self.output, &*heads, first_rows(added, some.rows(), *dim))]);
        Ok(())
    }
}

fn clamp<T: Real>(x: &mut T, limit: T) {
    if *x > limit {
        *x = limit;
    } else if *x < -limit {
        *x = -limit;
    }
}

/// Returns the first `rows` rows of a buffer.
fn first_rows<T>(room: &mut [T], rows: usize, width: usize) -> &mut [T] {
    let (first, _) = room.split_at_mut(rows * width);
    first
}

/// Keeps the last `kept` numbers of each sequence of `whole` numbers.
fn keep_last<T: Copy>(h: &mut Vec<T>, whole: usize, kept: usize) {
    let sequences = h.len() / whole;
    for sequence in 0..sequences {
        let end = (sequence + 1) * whole;
        h.copy_within(end - kept..end, sequence * kept);
    }
    h.truncate(sequences * kept);
}
