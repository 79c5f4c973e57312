//! Queries, keys and values of rows: up to three matrices, of which the first may have gates, or one that has them by head of keys.

use crate::Result;
use crate::attention::Queries;
use crate::kernel::Pool;
use crate::linear::Linear;
use crate::memory::{checked_product, zeros};
use crate::number::Real;

#[derive(Debug)]
pub(crate) enum Projections<T> {
    /// Queries, keys and values.
    Three(Box<[Linear<T>; 3]>),
    /// Queries, of which each head is followed by its gate, keys and values.
    Gated(Box<[Linear<T>; 3]>),
    /// Queries and keys, which are values before their norm.
    KeysAsValues(Box<[Linear<T>; 2]>),
    /// Queries alone, of a layer that uses the keys and values of another one.
    Queries(Linear<T>),
    /// For each head of keys its queries, its key and its value.
    Fused(Linear<T>),
}

impl<T: Real> Projections<T> {
    /// Computes keys `k` and values `v` of the rows `x` of `all`, and queries `q` of `last`, the last `count` of each sequence.
    /// Returns the gates of the queries, if there are any.
    ///
    /// # Errors
    /// When an intermediate result does not fit in memory.
    pub(crate) fn apply(
        &self,
        pool: &Pool,
        all: Queries,
        count: usize,
        [x, last]: [&[T]; 2],
        [q, k, v]: [&mut [T]; 3],
    ) -> Result<Vec<T>> {
        let fused = match self {
            Self::Three(each) => {
                let [queries, keys, values] = &**each;
                Linear::apply_all(pool, [(queries, last, q), (keys, x, k), (values, x, v)]);
                return Ok(Vec::new());
            }
            Self::KeysAsValues(each) => {
                let [queries, keys] = &**each;
                Linear::apply_all(pool, [(queries, last, q), (keys, x, &mut *k)]);
                v.copy_from_slice(k);
                return Ok(Vec::new());
            }
            Self::Queries(queries) => {
                Linear::apply_all(pool, [(queries, last, q)]);
                return Ok(Vec::new());
            }
            Self::Gated(each) => {
                let [queries, keys, values] = &**each;
                let mut both = zeros(checked_product(&[q.len(), 2])?)?;
                Linear::apply_all(pool, [(queries, last, &mut both[..]), (keys, x, k), (values, x, v)]);
                let mut gates = zeros(q.len())?;
                let to = q.chunks_exact_mut(all.head_dim).zip(gates.chunks_exact_mut(all.head_dim));
                for (head, (q, gate)) in both.chunks_exact(2 * all.head_dim).zip(to) {
                    let (its_query, its_gate) = head.split_at(all.head_dim);
                    q.copy_from_slice(its_query);
                    gate.copy_from_slice(its_gate);
                }
                return Ok(gates);
            }
            Self::Fused(fused) => fused,
        };
        let (dim, queries) = (all.head_dim, all.group * all.head_dim);
        let (head, row) = (queries + 2 * dim, all.kv_heads * (queries + 2 * dim));
        let mut joined = zeros(checked_product(&[all.rows(), row])?)?;
        Linear::apply_all(pool, [(fused, x, &mut joined[..])]);
        let keys = k.chunks_exact_mut(dim).zip(v.chunks_exact_mut(dim));
        for (head, (key, value)) in joined.chunks_exact(head).zip(keys) {
            let (_, rest) = head.split_at(queries);
            let (its_key, its_value) = rest.split_at(dim);
            key.copy_from_slice(its_key);
            value.copy_from_slice(its_value);
        }
        let last = joined.chunks_exact(all.count * row).flat_map(|sequence| {
            let (_, last) = sequence.split_at((all.count - count) * row);
            last.chunks_exact(head)
        });
        for (head, q) in last.zip(q.chunks_exact_mut(queries)) {
            let (its_queries, _) = head.split_at(queries);
            q.copy_from_slice(its_queries);
        }
        Ok(Vec::new())
    }
}
