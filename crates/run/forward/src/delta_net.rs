//! Gated `DeltaNet`: a causal convolution of queries, keys and values, and a matrix for each head, which every token decays and
//! corrects.
//!
//! The tokens of a call go through the matrix one by one, so that the sums do not depend on how many there are.
//!
//! Facts: [`decoder::DeltaNet`]; the method `delta_net` of the TorchScript text.

use crate::Result;
use crate::activation::{Gate, LayerActivation};
use crate::attention::Queries;
use crate::kernel::Pool;
use crate::linear::Linear;
use crate::memory::{checked_product, zeros};
use crate::norm::Norm;
use crate::number::Real;
use crate::sharing::share_rows;
use crate::states::{LayerStates, StateSizes};

/// Constant under the root of the length of a query or a key.
const LENGTH_EPS: f64 = 1e-6;

#[derive(Debug)]
pub(crate) struct DeltaNet<T> {
    pub(crate) projections: DeltaProjections<T>,
    /// Weights of the convolution, [channels, taps + 1].
    pub(crate) kernel: Vec<T>,
    /// Factor of each head's decay: the exponential of its logarithm.
    pub(crate) decays: Vec<f64>,
    pub(crate) biases: Vec<f64>,
    pub(crate) norm: Norm<T>,
    pub(crate) output: Linear<T>,
    pub(crate) key_heads: usize,
    pub(crate) sizes: StateSizes,
    /// Number of the layer among those of its kind.
    pub(crate) place: usize,
}

#[derive(Debug)]
pub(crate) enum DeltaProjections<T> {
    /// Queries, keys and values; gates of results; step sizes; decays.
    Apart(Box<[Linear<T>; 4]>),
    /// For each head of keys its query, its key, its values and their gates; and its step sizes and decays.
    Fused(Box<[Linear<T>; 2]>),
}

/// Projections of all rows: [rows, channels], [rows, values], and twice [rows, heads].
struct Projected<T> {
    channels: Vec<T>,
    gates: Vec<T>,
    steps: Vec<T>,
    decays: Vec<T>,
}

impl<T: Real> DeltaNet<T> {
    fn values(&self) -> usize {
        self.sizes.heads * self.sizes.value_dim
    }

    /// Computes the layer for the rows `x` with the activation of its convolution, and writes the results of the last `wanted` of each sequence to `out`. The states
    /// of the caches are those of the sequences, in order.
    ///
    /// # Errors
    /// When an intermediate result does not fit in memory.
    #[expect(clippy::too_many_arguments, reason = "a layer reads and writes these")]
    pub(crate) fn apply(
        &self,
        pool: &Pool,
        all: Queries,
        wanted: usize,
        activation: LayerActivation,
        x: &[T],
        states: Vec<(&LayerStates<T>, &mut LayerStates<T>)>,
        out: &mut [T],
    ) -> Result<()> {
        let Projected { channels, gates, steps, decays } = self.project(pool, all.rows(), x)?;
        let StateSizes { channels: width, taps, heads, key_dim, value_dim, .. } = self.sizes;
        let (conv, matrix) = (width * taps, key_dim * value_dim);
        let before: Vec<&[T]> = states.iter().flat_map(|(now, _)| now.conv.chunks_exact(conv)).collect();
        let (mut mixed, ones) = (zeros(channels.len())?, vec![T::ONE; width]);
        share_rows(pool, &mut mixed, width, |row, mixed| {
            let (sequence, token) = (row / all.count, row % all.count);
            let before = before.get(sequence).copied().unwrap_or_default();
            let rows = channels.get(sequence * all.count * width..).unwrap_or_default();
            self.convolve(token, before, rows, mixed);
            T::run(Gate { x: mixed, up: &ones, activation });
        });
        let mut made = zeros(checked_product(&[all.rows(), self.values()])?)?;
        let mut next_convs = Vec::new();
        let mut jobs = Vec::new();
        let mut results = made.chunks_exact_mut(all.count * value_dim);
        for (now, next) in states {
            next_convs.push(&mut next.conv);
            let matrices = now.matrices.chunks_exact(matrix).zip(next.matrices.chunks_exact_mut(matrix));
            jobs.extend(matrices.zip(results.by_ref()));
        }
        pool.for_each(jobs.into_iter().enumerate(), |(number, ((now, next), out))| {
            let (sequence, head) = (number / heads, number % heads);
            next.copy_from_slice(now);
            for (token, out) in out.chunks_exact_mut(value_dim).enumerate() {
                let row = sequence * all.count + token;
                let of = |numbers: &[T]| numbers.get(row * heads + head).copied().unwrap_or_default();
                let mixed = mixed.get(row * width..(row + 1) * width).unwrap_or_default();
                self.update(head, mixed, [of(&steps), of(&decays)], next, out);
            }
        });
        let next_convs = next_convs.into_iter().flat_map(|next| next.chunks_exact_mut(conv));
        for ((next, before), rows) in next_convs.zip(&before).zip(channels.chunks_exact(all.count * width)) {
            for (channel, next) in next.chunks_exact_mut(taps).enumerate() {
                for (tap, next) in next.iter_mut().enumerate() {
                    *next = self.earlier(channel, all.count + tap, before, rows);
                }
            }
        }
        if wanted == 0 {
            return Ok(());
        }
        let mut rows = zeros(checked_product(&[all.batch, wanted, self.values()])?)?;
        share_rows(pool, &mut rows, self.values(), |row, y| {
            let (sequence, token) = (row / wanted, all.count - wanted + row % wanted);
            for (head, y) in y.chunks_exact_mut(value_dim).enumerate() {
                let start = ((sequence * heads + head) * all.count + token) * value_dim;
                y.copy_from_slice(made.get(start..start + value_dim).unwrap_or_default());
            }
        });
        self.norm.apply(pool, self.values(), &mut rows);
        share_rows(pool, &mut rows, self.values(), |row, y| {
            let row = row / wanted * all.count + all.count - wanted + row % wanted;
            let gates = gates.get(row * self.values()..).unwrap_or_default();
            y.iter_mut().zip(gates).for_each(|(y, gate)| *y *= silu(*gate));
        });
        Linear::apply_all(pool, [(&self.output, &rows[..], out)]);
        Ok(())
    }

    fn project(&self, pool: &Pool, rows: usize, x: &[T]) -> Result<Projected<T>> {
        let StateSizes { channels, heads, key_dim, value_dim, .. } = self.sizes;
        let room = |width| zeros(checked_product(&[rows, width])?);
        let mut all = Projected {
            channels: room(channels)?,
            gates: room(self.values())?,
            steps: room(heads)?,
            decays: room(heads)?,
        };
        let [first, second] = match &self.projections {
            DeltaProjections::Apart(each) => {
                let [qkv, z, b, a] = &**each;
                let products = [
                    (qkv, x, &mut all.channels[..]),
                    (z, x, &mut all.gates),
                    (b, x, &mut all.steps),
                    (a, x, &mut all.decays),
                ];
                Linear::apply_all(pool, products);
                return Ok(all);
            }
            DeltaProjections::Fused(both) => &**both,
        };
        let (mut joined, mut pairs) = (room(channels + self.values())?, room(2 * heads)?);
        Linear::apply_all(pool, [(first, x, &mut joined[..]), (second, x, &mut pairs)]);
        let (group, keys) = (heads / self.key_heads, self.key_heads * key_dim);
        let values = group * value_dim;
        for (number, part) in joined.chunks_exact(2 * (key_dim + values)).enumerate() {
            let (row, head) = (number / self.key_heads, number % self.key_heads);
            let (query, rest) = part.split_at(key_dim);
            let (key, rest) = rest.split_at(key_dim);
            let (value, gate) = rest.split_at(values);
            let at = row * channels;
            put(&mut all.channels, at + head * key_dim, query);
            put(&mut all.channels, at + keys + head * key_dim, key);
            put(&mut all.channels, at + 2 * keys + head * values, value);
            put(&mut all.gates, number * values, gate);
        }
        for (number, part) in pairs.chunks_exact(2 * group).enumerate() {
            let (step, decay) = part.split_at(group);
            put(&mut all.steps, number * group, step);
            put(&mut all.decays, number * group, decay);
        }
        Ok(all)
    }

    /// Returns a number of a channel: those of `before`, then those of the rows.
    fn earlier(&self, channel: usize, position: usize, before: &[T], rows: &[T]) -> T {
        let StateSizes { channels, taps, .. } = self.sizes;
        let number = match position.checked_sub(taps) {
            None => before.get(channel * taps + position),
            Some(row) => rows.get(row * channels + channel),
        };
        number.copied().unwrap_or_default()
    }

    fn convolve(&self, token: usize, before: &[T], rows: &[T], mixed: &mut [T]) {
        let kernels = self.kernel.chunks_exact(self.sizes.taps + 1);
        for ((channel, mixed), kernel) in mixed.iter_mut().enumerate().zip(kernels) {
            let mut sum = T::default();
            for (tap, weight) in kernel.iter().enumerate() {
                sum += *weight * self.earlier(channel, token + tap, before, rows);
            }
            *mixed = sum;
        }
    }

    /// Sends a token through the matrix of a head, and writes what its query finds there.
    fn update(&self, head: usize, mixed: &[T], [step, decay]: [T; 2], matrix: &mut [T], out: &mut [T]) {
        let StateSizes { heads, key_dim, value_dim, .. } = self.sizes;
        let keys = self.key_heads * key_dim;
        let at = head / (heads / self.key_heads) * key_dim;
        let part = |start: usize, len: usize| mixed.get(start..start + len).unwrap_or_default();
        let (query, key) = (part(at, key_dim), part(keys + at, key_dim));
        let value = part(2 * keys + head * value_dim, value_dim);
        let inverse = |numbers: &[T]| {
            let sum = numbers.iter().fold(T::from_f64(LENGTH_EPS), |sum, x| sum + *x * *x);
            T::ONE / sum.sqrt()
        };
        #[expect(clippy::cast_precision_loss, reason = "the size of a head is small")]
        let (of_query, of_key) = (inverse(query) / T::from_f64(key_dim as f64).sqrt(), inverse(key));
        let [factor, bias] = [&self.decays, &self.biases].map(|all| all.get(head).copied().unwrap_or(0.0));
        let kept = T::from_f64(libm::exp(-factor * softplus(decay.to_f64() + bias)));
        let step = T::ONE / (T::ONE + (-step).exp());
        let mut change = vec![T::default(); value_dim];
        for (row, key) in matrix.chunks_exact_mut(value_dim).zip(key) {
            let key = *key * of_key;
            for (x, known) in row.iter_mut().zip(&mut change) {
                *x *= kept;
                *known += *x * key;
            }
        }
        change.iter_mut().zip(value).for_each(|(known, value)| *known = (*value - *known) * step);
        for ((row, key), query) in matrix.chunks_exact_mut(value_dim).zip(key).zip(query) {
            let (key, query) = (*key * of_key, *query * of_query);
            for ((x, change), out) in row.iter_mut().zip(&change).zip(&mut *out) {
                *x += key * *change;
                *out += query * *x;
            }
        }
    }
}

fn put<T: Copy>(to: &mut [T], start: usize, from: &[T]) {
    if let Some(to) = to.get_mut(start..start + from.len()) {
        to.copy_from_slice(from);
    }
}

fn silu<T: Real>(x: T) -> T {
    x / (T::ONE + (-x).exp())
}

fn softplus(x: f64) -> f64 {
    if x > 20.0 { x } else { libm::log1p(libm::exp(x)) }
}
