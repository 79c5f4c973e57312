//! Inputs of each layer besides the rows of the one before.
//!
//! Facts: the formulas of [`decoder::LayerInputs`].

use crate::Result;
use crate::activation::{Gate, LayerActivation};
use crate::kernel::{Matrix, Pool};
use crate::linear::Linear;
use crate::memory::{checked_product, zeros};
use crate::norm::Norm;
use crate::number::Real;
use crate::sharing::share_rows;
use crate::vector::{AddScaled, Scale};

/// What makes the inputs of all layers from tokens and their embeddings.
#[derive(Debug)]
pub(crate) struct InputTable<T> {
    /// Matrix of shape [vocab, layers × width].
    pub(crate) embedding: Matrix,
    pub(crate) projection: Linear<T>,
    pub(crate) norm: Norm<T>,
    /// Factors of the embeddings and of the projection.
    pub(crate) factors: [T; 2],
    /// Size of the inputs of all layers.
    pub(crate) width: usize,
}

/// Inputs of the rows of a call.
#[derive(Debug)]
pub(crate) struct InputRows<T> {
    /// Shape [rows, layers, width].
    numbers: Vec<T>,
    /// Size of the inputs of all layers.
    width: usize,
    /// Rows of each sequence.
    pub(crate) count: usize,
}

/// What a layer makes of its input.
#[derive(Debug)]
pub(crate) struct LayerInput<T> {
    pub(crate) gate: Linear<T>,
    pub(crate) output: Linear<T>,
    pub(crate) norm: Norm<T>,
    /// Number of the first of its inputs among those of all layers.
    pub(crate) first: usize,
    pub(crate) width: usize,
}

impl<T: Real> InputTable<T> {
    /// Returns the inputs of the rows `h` [rows, dim], the embeddings of the tokens `ids`, of which each sequence has `count`.
    ///
    /// # Errors
    /// When they do not fit in memory.
    pub(crate) fn rows(&self, pool: &Pool, ids: &[usize], h: &[T], count: usize) -> Result<InputRows<T>> {
        let mut numbers = zeros(checked_product(&[ids.len(), self.width])?)?;
        Linear::apply_all(pool, [(&self.projection, h, &mut numbers[..])]);
        let [embedding, projection] = self.factors;
        let half = T::from_f64(std::f64::consts::FRAC_1_SQRT_2);
        share_rows(pool, &mut numbers, self.width, |row, x| {
            T::run(Scale { x, factor: projection, cap: None });
            self.norm.row(x);
            let mut numbers = x.iter_mut();
            let add = |number| {
                if let Some(x) = numbers.next() {
                    *x = (*x + T::from_f64(number) * embedding) * half;
                }
            };
            if let Some(id) = ids.get(row) {
                self.embedding.for_each_in_row(*id, add);
            }
        });
        Ok(InputRows { numbers, width: self.width, count })
    }
}

impl<T: Real> LayerInput<T> {
    /// Adds what the layer makes of its inputs to the rows `h` [batch, wanted, dim], the last ones of each sequence.
    ///
    /// # Errors
    /// When an intermediate result does not fit in memory.
    pub(crate) fn apply(
        &self,
        pool: &Pool,
        activation: LayerActivation,
        wanted: usize,
        inputs: &InputRows<T>,
        h: &mut [T],
        added: &mut [T],
    ) -> Result<()> {
        let rows = h.len() / self.output.matrix.rows();
        let mut gates = zeros(checked_product(&[rows, self.width])?)?;
        Linear::apply_all(pool, [(&self.gate, &*h, &mut gates[..])]);
        share_rows(pool, &mut gates, self.width, |row, x| {
            let row = row / wanted * inputs.count + (inputs.count - wanted) + row % wanted;
            let start = row * inputs.width + self.first;
            if let Some(up) = inputs.numbers.get(start..start + self.width) {
                T::run(Gate { x, up, activation });
            }
        });
        Linear::apply_all(pool, [(&self.output, &gates[..], &mut *added)]);
        self.norm.apply(pool, self.norm.part, added);
        T::run(AddScaled { x: h, y: added, factor: T::ONE });
        Ok(())
    }
}
