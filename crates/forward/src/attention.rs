//! Attention of queries over the keys and values of a cache.
//!
//! The softmax is computed block by block: with each block of keys, the sums so far are scaled to the new maximum, so
//! that no matrix of all scores is needed. The order of the sums depends on neither the number of threads nor how many
//! tokens come in one call.
//!
//! Facts: `attention` and `mask` of the TorchScript text; Milakov and Gimelshein, "Online normalizer calculation for
//! softmax" (2018).

#![expect(
    clippy::arithmetic_side_effects,
    reason = "floating-point numbers do not overflow; sizes are of arrays"
)]

use crate::Result;
use crate::cache::{BLOCK, Head};
use crate::kernel::Pool;
use crate::memory::{product, zeros};
use crate::number::Real;
use crate::vector::Product;

/// The most rows of queries that share the reading of a block.
const ROWS: usize = 64;
/// Fewer multiplications than this are done faster by one thread than by several.
const WORTH_SHARING: usize = 1 << 19;

/// What the queries of one call have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queries {
    pub(crate) batch: usize,
    /// New tokens of each sequence.
    pub(crate) count: usize,
    /// Heads of keys and values.
    pub(crate) kv_heads: usize,
    /// Heads of queries for each head of keys and values.
    pub(crate) group: usize,
    pub(crate) head_dim: usize,
    /// Tokens of each sequence before the new ones.
    pub(crate) past: usize,
}

impl Queries {
    /// Tokens whose queries are computed together.
    fn tile(&self) -> usize {
        ROWS.checked_div(self.group).unwrap_or(1).clamp(1, self.count.max(1))
    }

    fn tiles(&self) -> usize {
        self.count.div_ceil(self.tile())
    }

    /// Numbers in the result of a tile.
    fn unit(&self) -> usize {
        self.tile().saturating_mul(self.group).saturating_mul(self.head_dim)
    }

    /// Room for the results of all tiles.
    ///
    /// # Errors
    /// When it does not fit in memory.
    pub(crate) fn room<T: Real>(&self) -> Result<Vec<T>> {
        zeros(product(&[self.batch, self.kv_heads, self.tiles(), self.unit()])?)
    }

    /// Attention of the queries `q` [batch, count, heads, `head_dim`] over the heads of a layer [batch, `kv_heads`], into `out`
    /// of the shape of `q`. A token sees the last `window` ones, itself among them; `None` means all.
    pub(crate) fn attend<T: Real>(
        &self,
        pool: &Pool,
        heads: &[Head<T>],
        window: Option<usize>,
        q: &[T],
        room: &mut [T],
        out: &mut [T],
    ) {
        let unit = self.unit().max(1);
        let work = |number: usize, o: &mut [T]| self.tile_of(heads, window, q, number, o);
        let seen = window.map_or(usize::MAX, |window| window + self.tile()).min(self.past + self.count);
        if room.len().saturating_mul(seen) < WORTH_SHARING {
            room.chunks_mut(unit).enumerate().for_each(|(number, o)| work(number, o));
        } else {
            pool.for_each(room.chunks_mut(unit).enumerate().collect(), |(number, o)| work(number, o));
        }
        self.collect(room, out);
    }

    /// Where the tile with this number is: sequence, head of keys and values, first token.
    fn place(&self, number: usize) -> (usize, usize, usize) {
        let (tiles, heads) = (self.tiles().max(1), self.kv_heads.max(1));
        (number / tiles / heads, number / tiles % heads, number % tiles * self.tile())
    }

    /// The queries of a token for one head of keys and values, as a range of `q`.
    fn of_token(&self, sequence: usize, head: usize, token: usize) -> std::ops::Range<usize> {
        let width = self.group * self.head_dim;
        let start = ((sequence * self.count + token) * self.kv_heads + head) * width;
        start..start + width
    }

    /// Brings the results of the tiles into the order of `q`.
    fn collect<T: Real>(&self, room: &[T], out: &mut [T]) {
        let width = (self.group * self.head_dim).max(1);
        for (number, tile) in room.chunks(self.unit().max(1)).enumerate() {
            let (sequence, head, first) = self.place(number);
            for (token, row) in (first..self.count).zip(tile.chunks_exact(width)) {
                if let Some(out) = out.get_mut(self.of_token(sequence, head, token)) {
                    out.copy_from_slice(row);
                }
            }
        }
    }

    fn tile_of<T: Real>(
        &self,
        heads: &[Head<T>],
        window: Option<usize>,
        q: &[T],
        number: usize,
        o: &mut [T],
    ) {
        let (sequence, head, first) = self.place(number);
        let Some(keys) = heads.get(sequence * self.kv_heads + head) else { return };
        let last = (first + self.tile()).min(self.count);
        let mut queries = Vec::with_capacity(o.len());
        for token in first..last {
            queries.extend_from_slice(q.get(self.of_token(sequence, head, token)).unwrap_or_default());
        }
        let rows = (last - first) * self.group;
        let used = (rows * self.head_dim).min(o.len());
        let Some(o) = o.get_mut(..used) else { return };
        o.fill(T::default());
        let positions = self.past + first..self.past + last;
        let tile = Tile { group: self.group, head_dim: self.head_dim, positions, window };
        tile.attend(keys, self.past + self.count, &queries, o);
    }
}

/// The queries of some tokens in one group of heads.
struct Tile {
    group: usize,
    head_dim: usize,
    positions: std::ops::Range<usize>,
    window: Option<usize>,
}

impl Tile {
    /// The first token that one at `position` sees.
    fn first_seen(&self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// Attention of `q` over the first `len` tokens of a head. Rows are tokens, then heads of the group.
    fn attend<T: Real>(&self, head: &Head<T>, len: usize, q: &[T], o: &mut [T]) {
        let rows = self.positions.len() * self.group;
        let mut scores = vec![T::default(); rows * BLOCK];
        let mut sums = vec![(T::NEG_INFINITY, T::default()); rows];
        #[expect(clippy::cast_precision_loss, reason = "the size of a head is small")]
        let scale = T::from_f64((self.head_dim as f64).sqrt());
        let (first, end) = (self.first_seen(self.positions.start), self.positions.end.min(len));
        let blocks = head.blocks().iter().enumerate().take(end.div_ceil(BLOCK)).skip(first / BLOCK);
        for (number, block) in blocks {
            let start = number * BLOCK;
            let tokens = BLOCK.min(end - start);
            scores.fill(T::default());
            let products = Product {
                a: q,
                a_step: self.head_dim,
                b: &block.keys,
                b_step: BLOCK,
                inner: self.head_dim,
                columns: BLOCK,
                c_step: BLOCK,
            };
            products.add_to(&mut scores);
            let all =
                scores.chunks_exact_mut(BLOCK).zip(&mut sums).zip(o.chunks_exact_mut(self.head_dim.max(1)));
            for (row, ((scores, (maximum, sum)), o)) in all.enumerate() {
                let position = self.positions.start + row / self.group.max(1);
                let from = self.first_seen(position).saturating_sub(start).min(BLOCK);
                let to = (position + 1).saturating_sub(start).min(BLOCK);
                softmax(scores, from..to, scale, maximum, sum, o);
            }
            let weighted = Product {
                a: &scores,
                a_step: BLOCK,
                b: &block.values,
                b_step: self.head_dim,
                inner: tokens,
                columns: self.head_dim,
                c_step: self.head_dim,
            };
            weighted.add_to(o);
        }
        for (o, (_, sum)) in o.chunks_exact_mut(self.head_dim.max(1)).zip(&sums) {
            for o in o {
                *o = *o / *sum;
            }
        }
    }
}

/// Turns scores into powers relative to the maximum so far, those outside of `seen` into 0, and scales what was summed
/// relative to the maximum before.
fn softmax<T: Real>(
    scores: &mut [T],
    seen: std::ops::Range<usize>,
    scale: T,
    maximum: &mut T,
    sum: &mut T,
    o: &mut [T],
) {
    for (column, score) in scores.iter_mut().enumerate() {
        *score = if seen.contains(&column) { *score / scale } else { T::NEG_INFINITY };
    }
    let greatest = scores.iter().fold(*maximum, |most, score| if *score > most { *score } else { most });
    // Nothing is seen yet: the difference of two infinities is not a number.
    let base = if greatest > T::NEG_INFINITY { greatest } else { T::default() };
    for score in scores.iter_mut() {
        *score = (*score - base).exp();
    }
    let factor = (*maximum - base).exp();
    let mut parts = [T::default(); 8];
    for chunk in scores.as_chunks::<8>().0 {
        for (part, power) in parts.iter_mut().zip(chunk) {
            *part += *power;
        }
    }
    *sum = parts.into_iter().fold(*sum * factor, |sum, part| sum + part);
    *maximum = greatest;
    if factor != T::ONE {
        for o in o {
            *o *= factor;
        }
    }
}
