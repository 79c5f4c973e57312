//! Attention of queries over the keys and values of a cache.
//!
//! The softmax is computed block by block: with each block of keys, the sums so far are scaled to the new maximum, so
//! that no matrix of all scores is needed. The order of the sums depends on neither the number of threads nor the
//! number of tokens in a call.
//!
//! Facts: `attention` and `mask` of the TorchScript text; Milakov and Gimelshein, "Online normalizer calculation for
//! softmax" (2018).

#![expect(clippy::inline_always, reason = "loops are to be compiled for other instructions than the rest")]

use decoder::Alibi;
use kernels::{Loops, Simd};

use crate::Result;
use crate::alibi::ScoreBias;
use crate::cache::{BLOCK, Head};
use crate::kernel::Pool;
use crate::memory::checked_product;
use crate::mixed_heads::HeadSizes;
use crate::number::Real;
use crate::sharing::PARALLEL_ELEMENTS_MIN;
use crate::vector::{Scale, VectorProduct};

/// Largest number of query rows that share the reading of a block.
const QUERY_ROWS_MAX: usize = 64;
/// Number of multiplications below which one thread is faster than several.
const PARALLEL_MULTIPLICATIONS_MIN: usize = 1 << 19;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Queries {
    pub(crate) batch: usize,
    /// New tokens of each sequence.
    pub(crate) count: usize,
    pub(crate) kv_heads: usize,
    /// Number of query heads for each key-value head.
    pub(crate) group: usize,
    pub(crate) head_dim: usize,
    /// Tokens of each sequence before the new ones.
    pub(crate) past: usize,
}

impl Queries {
    /// Returns the same rows with heads of other sizes.
    pub(crate) fn with_heads(self, heads: HeadSizes) -> Self {
        let HeadSizes { kv_heads, group, head_dim } = heads;
        Self { kv_heads, group, head_dim, ..self }
    }

    /// Returns the number of tokens whose queries are computed together.
    fn tile_tokens(&self) -> usize {
        (QUERY_ROWS_MAX / self.group).clamp(1, self.count.max(1))
    }

    fn tile_count(&self) -> usize {
        self.count.div_ceil(self.tile_tokens())
    }

    fn tile_elements(&self) -> usize {
        self.tile_tokens() * self.group * self.head_dim
    }

    /// Returns the number of elements in the results of all tiles.
    ///
    /// # Errors
    /// When the results do not fit in memory.
    pub(crate) fn all_tiles_elements(&self) -> Result<usize> {
        checked_product(&[self.batch, self.kv_heads, self.tile_count(), self.tile_elements()])
    }

    pub(crate) fn rows(&self) -> usize {
        self.batch * self.count
    }

    /// Returns the sizes for the last `count` tokens of each sequence.
    pub(crate) fn for_last_tokens(&self, count: usize) -> Self {
        let count = count.min(self.count);
        Self { count, past: self.past + (self.count - count), ..*self }
    }

    /// Writes keys and values [batch, count, `kv_heads`, `head_dim`] to the heads of a layer [batch, `kv_heads`], which have
    /// room for them.
    pub(crate) fn store_keys_values<T: Real>(
        &self,
        pool: &Pool,
        keys: &[T],
        values: &[T],
        heads: &mut [Head<T>],
    ) {
        let (dim, width) = (self.head_dim, self.kv_heads * self.head_dim);
        let write = |number: usize, head: &mut Head<T>| {
            let (sequence, of_token) = (number / self.kv_heads, number % self.kv_heads);
            for token in 0..self.count {
                let start = (sequence * self.count + token) * width + of_token * dim;
                let (key, value) = (keys.get(start..start + dim), values.get(start..start + dim));
                head.set_token(self.past + token, key.unwrap_or_default(), value.unwrap_or_default());
            }
        };
        if keys.len() < PARALLEL_ELEMENTS_MIN {
            heads.iter_mut().enumerate().for_each(|(number, head)| write(number, head));
        } else {
            pool.for_each(heads.iter_mut().enumerate(), |(number, head)| write(number, head));
        }
    }

    /// Computes attention of the queries `q` [batch, count, heads, `head_dim`] over the heads of a layer [batch,
    /// `kv_heads`], into `out` of the shape of `q`; on this thread alone if there is no pool.
    pub(crate) fn attend<T: Real>(
        &self,
        pool: Option<&Pool>,
        heads: &[Head<T>],
        scores: &ScoreTransform<T>,
        q: &[T],
        room: &mut [T],
        out: &mut [T],
    ) {
        let unit = self.tile_elements();
        let used = (self.batch * self.kv_heads * self.tile_count() * unit).min(room.len());
        let (room, _) = room.split_at_mut(used);
        let work = |number: usize, o: &mut [T]| self.compute_tile(heads, scores, q, number, o);
        let seen = scores
            .window
            .map_or(usize::MAX, |window| window + self.tile_tokens())
            .min(self.past + self.count);
        let is_large = room.len().saturating_mul(seen) >= PARALLEL_MULTIPLICATIONS_MIN;
        let tiles = room.chunks_mut(unit).enumerate();
        match pool.filter(|_| is_large) {
            Some(pool) => pool.for_each(tiles, |(number, o)| work(number, o)),
            None => tiles.for_each(|(number, o)| work(number, o)),
        }
        self.copy_tiles_to(room, out);
    }

    fn tile_position(&self, number: usize) -> TilePosition {
        let tiles = self.tile_count();
        TilePosition {
            sequence: number / tiles / self.kv_heads,
            head: number / tiles % self.kv_heads,
            first: number % tiles * self.tile_tokens(),
        }
    }

    /// Returns the range in `q` of the queries of a token for the key-value head at `place`.
    fn token_range(&self, place: &TilePosition, token: usize) -> std::ops::Range<usize> {
        let width = self.group * self.head_dim;
        let start = ((place.sequence * self.count + token) * self.kv_heads + place.head) * width;
        start..start + width
    }

    /// Copies the results of the tiles to `out`, in the order of `q`.
    fn copy_tiles_to<T: Real>(&self, room: &[T], out: &mut [T]) {
        for (number, tile) in room.chunks(self.tile_elements()).enumerate() {
            let place = self.tile_position(number);
            for (token, row) in (place.first..self.count).zip(tile.chunks_exact(self.group * self.head_dim)) {
                if let Some(out) = out.get_mut(self.token_range(&place, token)) {
                    out.copy_from_slice(row);
                }
            }
        }
    }

    fn compute_tile<T: Real>(
        &self,
        heads: &[Head<T>],
        rules: &ScoreTransform<T>,
        q: &[T],
        number: usize,
        o: &mut [T],
    ) {
        let place = self.tile_position(number);
        let TilePosition { sequence, head, first } = place;
        let Some(cached) = heads.get(sequence * self.kv_heads + head) else { return };
        let last = (first + self.tile_tokens()).min(self.count);
        let mut queries = Vec::with_capacity(o.len());
        for token in first..last {
            queries.extend_from_slice(q.get(self.token_range(&place, token)).unwrap_or_default());
        }
        let rows = (last - first) * self.group;
        let used = (rows * self.head_dim).min(o.len());
        let Some(o) = o.get_mut(..used) else { return };
        o.fill(T::default());
        let positions = self.past + first..self.past + last;
        let scores = vec![T::default(); rows * BLOCK];
        let mut sums = vec![(T::NEG_INFINITY, T::default()); rows];
        if let Some(sinks) = &rules.sinks {
            let sinks = sinks.iter().skip(head * self.group).take(self.group).cycle();
            sums.iter_mut().zip(sinks).for_each(|(sum, sink)| *sum = (*sink, T::ONE));
        }
        let (group, head_dim, q) = (self.group, self.head_dim, queries.as_slice());
        let heads = [head * group, group];
        T::run(AttentionTile { heads, head_dim, positions, rules, head: cached, q, scores, sums, o });
    }
}

#[derive(Clone, Copy)]
struct TilePosition {
    sequence: usize,
    /// Index of the key-value head.
    head: usize,
    /// Index of the first token.
    first: usize,
}

/// Transformation of the attention scores of a layer.
#[derive(Debug)]
pub(crate) struct ScoreTransform<T> {
    /// Number of tokens that a token attends to, itself included; `None` for all.
    pub(crate) window: Option<usize>,
    pub(crate) factor: T,
    pub(crate) soft_cap: Option<T>,
    /// Biases of the keys' positions.
    pub(crate) bias: Option<ScoreBias>,
    /// Attention sinks: for each query head, a score that belongs to no token.
    pub(crate) sinks: Option<Vec<T>>,
}

/// Attention of some tokens in one group of heads. Rows are tokens, then heads of the group.
struct AttentionTile<'t, T> {
    /// Index of the first query head, and the number of heads.
    heads: [usize; 2],
    head_dim: usize,
    positions: std::ops::Range<usize>,
    rules: &'t ScoreTransform<T>,
    head: &'t Head<T>,
    q: &'t [T],
    /// Scores of one block, for each row.
    scores: Vec<T>,
    /// Maximum so far of each row, and the sum of exponentials relative to it.
    sums: Vec<(T, T)>,
    o: &'t mut [T],
}

impl<T: Real> AttentionTile<'_, T> {
    /// Returns the first position that a token at `position` attends to.
    #[inline(always)]
    fn first_attended(window: Option<usize>, position: usize) -> usize {
        window.map_or(0, |window| (position + 1).saturating_sub(window))
    }
}

impl<T: Real> Loops<T> for AttentionTile<'_, T> {
    #[inline(always)]
    fn run<S: Simd<T, N>, const N: usize>(self, simd: S) {
        let Self { heads, head_dim, positions, rules, head, q, mut scores, mut sums, o } = self;
        let [_, group] = heads;
        let (window, factor) = (rules.window, rules.factor);
        let (first, end) = (Self::first_attended(window, positions.start), positions.end);
        let blocks = head.blocks().iter().enumerate().take(end.div_ceil(BLOCK)).skip(first / BLOCK);
        for (number, block) in blocks {
            let start = number * BLOCK;
            scores.fill(T::default());
            let products = VectorProduct {
                a: q,
                a_step: head_dim,
                b: if block.rotated.is_empty() { &block.keys } else { &block.rotated },
                b_step: BLOCK,
                inner: head_dim,
                columns: BLOCK,
                c_step: BLOCK,
            };
            products.add_to(simd, &mut scores);
            let mut factor = factor;
            if let Some(bias) = &rules.bias {
                if bias.kind == Alibi::AfterScale {
                    Scale { x: &mut scores, factor, cap: None }.run(simd);
                    factor = T::ONE;
                }
                bias.add_to(heads, start, BLOCK, &mut scores);
            }
            // A soft cap applies to scores that are already multiplied by the factor.
            let factor = match rules.soft_cap {
                Some(cap) => {
                    Scale { x: &mut scores, factor, cap: Some(cap) }.run(simd);
                    T::ONE
                }
                None => factor,
            };
            let all = scores.chunks_exact_mut(BLOCK).zip(&mut sums).zip(o.chunks_exact_mut(head_dim));
            for (row, ((scores, (maximum, sum)), o)) in all.enumerate() {
                let position = positions.start + row / group;
                let from = Self::first_attended(window, position).saturating_sub(start).min(BLOCK);
                let to = (position + 1).saturating_sub(start).min(BLOCK);
                softmax(scores, from..to, factor, maximum, sum, o);
            }
            let weighted = VectorProduct {
                a: &scores,
                a_step: BLOCK,
                b: &block.values,
                b_step: head_dim,
                inner: BLOCK.min(end - start),
                columns: head_dim,
                c_step: head_dim,
            };
            weighted.add_to(simd, o);
        }
        for (o, (_, sum)) in o.chunks_exact_mut(head_dim).zip(&sums) {
            for o in o {
                *o = *o / *sum;
            }
        }
    }
}

/// Number of scores whose maxima and sums are computed side by side.
const LANES: usize = 16;

/// Replaces scores by their exponentials relative to the maximum so far, 0 outside of `seen`, and rescales the earlier
/// sums from the previous maximum. Scores are multiplied by `factor` first.
#[inline(always)]
fn softmax<T: Real>(
    scores: &mut [T],
    seen: std::ops::Range<usize>,
    factor: T,
    maximum: &mut T,
    sum: &mut T,
    o: &mut [T],
) {
    let (scores, _) = scores.as_chunks_mut::<LANES>();
    let mut greatest = [T::NEG_INFINITY; LANES];
    if seen == (0..BLOCK) {
        for chunk in scores.iter_mut() {
            for (most, score) in greatest.iter_mut().zip(chunk) {
                *score *= factor;
                *most = larger(*most, *score);
            }
        }
    } else {
        for (number, chunk) in scores.iter_mut().enumerate() {
            for (lane, (most, score)) in greatest.iter_mut().zip(chunk).enumerate() {
                let is_seen = seen.contains(&(number * LANES + lane));
                *score = if is_seen { *score * factor } else { T::NEG_INFINITY };
                *most = larger(*most, *score);
            }
        }
    }
    let greatest = greatest.into_iter().fold(*maximum, larger);
    // As long as no token is seen, the difference of two infinities would be NaN.
    let base = if greatest > T::NEG_INFINITY { greatest } else { T::default() };
    let mut parts = [T::default(); LANES];
    for chunk in scores {
        for (part, score) in parts.iter_mut().zip(chunk) {
            *score = (*score - base).exp();
            *part += *score;
        }
    }
    let scale = (*maximum - base).exp();
    *sum = parts.into_iter().fold(*sum * scale, |sum, part| sum + part);
    *maximum = greatest;
    if scale != T::ONE {
        for o in o {
            *o *= scale;
        }
    }
}

#[inline(always)]
fn larger<T: Real>(a: T, b: T) -> T {
    if b > a { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, softmax};

    #[test]
    fn large_scores_are_relative_to_the_largest() {
        for seen in [0..BLOCK, 1..BLOCK] {
            let mut scores = [100.0_f32; BLOCK];
            scores[1] = 99.0;
            let (mut maximum, mut sum, count) = (f32::NEG_INFINITY, 0.0, seen.len());
            softmax(&mut scores, seen, 2.0, &mut maximum, &mut sum, &mut []);
            let expected = f64::from(u32::try_from(count - 1).expect("small")) + (-2_f64).exp();
            assert!(maximum.to_bits() == 200_f32.to_bits(), "{maximum}");
            assert!((f64::from(sum) - expected).abs() < 1e-4, "{sum}, not {expected}");
        }
    }
}
