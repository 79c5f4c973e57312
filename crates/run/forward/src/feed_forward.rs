//! Feed-forward network of a layer: the gate, up and down projections.
//!
//! Facts: the formulas of [`decoder::FeedForwardKind`].

use crate::activation::{Gate, LayerActivation};
use crate::kernel::Pool;
use crate::linear::Linear;
use crate::number::Real;
use crate::sharing::PARALLEL_ELEMENTS_MIN;

#[derive(Debug)]
pub(crate) struct FeedForward<T> {
    pub(crate) gate: GateAndUp<T>,
    pub(crate) down: Linear<T>,
}

/// Gate and up projections, as two matrices or one.
#[derive(Debug)]
pub(crate) enum GateAndUp<T> {
    Two([Linear<T>; 2]),
    /// One matrix whose rows alternate between gate and up, the first of the gate.
    Interleaved(Linear<T>),
    /// Up alone, of a layer without a gate. Its results take the place of the gate's, and those of up are 1.
    Up(Linear<T>),
}

pub(crate) struct FeedForwardRows<'r, T> {
    pub(crate) layer: &'r FeedForward<T>,
    /// Input of shape [rows, dim].
    pub(crate) x: &'r [T],
    /// Buffer for rows × 2 × hidden intermediate numbers.
    pub(crate) hidden: &'r mut [T],
    /// Results of shape [rows, dim].
    pub(crate) out: &'r mut [T],
}

impl<T: Real> FeedForward<T> {
    /// Returns the hidden width: the numbers between the matrices, for each row.
    pub(crate) fn hidden(&self) -> usize {
        self.down.matrix.cols()
    }

    /// Computes all rows of all networks, in few batches of work for the threads.
    pub(crate) fn apply_all(pool: &Pool, activation: LayerActivation, all: &mut [FeedForwardRows<'_, T>]) {
        let products =
            all.iter_mut().flat_map(|FeedForwardRows { layer, x, hidden, .. }| match &layer.gate {
                GateAndUp::Two([first, second]) => {
                    let (gate, up) = hidden.split_at_mut(hidden.len() / 2);
                    [Some((first, *x, gate)), Some((second, *x, up))]
                }
                GateAndUp::Interleaved(both) => [Some((both, *x, &mut **hidden)), None],
                GateAndUp::Up(up) => {
                    let (results, ones) = hidden.split_at_mut(hidden.len() / 2);
                    ones.fill(T::ONE);
                    [Some((up, *x, results)), None]
                }
            });
        Linear::apply_all(pool, products.flatten());
        let numbers = all.iter().map(|rows| rows.hidden.len()).sum::<usize>();
        let gates = all.iter_mut().flat_map(|FeedForwardRows { layer, hidden, .. }| {
            if matches!(layer.gate, GateAndUp::Interleaved(_)) {
                deinterleave(hidden);
            }
            let (gate, up) = hidden.split_at_mut(hidden.len() / 2);
            gate.chunks_mut(PARALLEL_ELEMENTS_MIN).zip(up.chunks(PARALLEL_ELEMENTS_MIN))
        });
        let work = |(x, up)| T::run(Gate { x, up, activation });
        if numbers < PARALLEL_ELEMENTS_MIN {
            gates.for_each(work);
        } else {
            pool.for_each(gates, work);
        }
        let products = all.iter_mut().map(|FeedForwardRows { layer, hidden, out, .. }| {
            let (gate, _) = hidden.split_at_mut(hidden.len() / 2);
            (&layer.down, &*gate, &mut **out)
        });
        Linear::apply_all(pool, products);
    }
}

/// Rearranges alternating numbers [rows, hidden, 2] into [2, rows, hidden].
fn deinterleave<T: Real>(numbers: &mut [T]) {
    let both = numbers.to_vec();
    let (gate, up) = numbers.split_at_mut(numbers.len() / 2);
    for ((gate, up), [first, second]) in gate.iter_mut().zip(up).zip(both.as_chunks::<2>().0) {
        (*gate, *up) = (*first, *second);
    }
}
