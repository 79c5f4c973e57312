//! Inputs of each layer besides the rows of the one before.
//!
//! Facts: the formulas of [`decoder::LayerInputs`].

use decoder::{LayerInputs, LayerPart, Weight};

use crate::activation::{Gate, LayerActivation};
use crate::kernel::{Matrix, Pool};
use crate::linear::Linear;
use crate::memory::{checked_product, size_in_memory, zeros};
use crate::norm::Norm;
use crate::number::Real;
use crate::sharing::share_rows;
use crate::vector::{AddScaled, Scale};
use crate::weights::WeightLookup;
use crate::{Error, Result};

/// What makes the inputs of all layers from tokens and their embeddings.
#[derive(Debug)]
pub(crate) struct InputTable<T> {
    /// Matrix of shape [vocab, layers × width].
    embedding: Matrix,
    projection: Linear<T>,
    norm: Norm<T>,
    /// Factors of the embeddings and of the projection.
    factors: [T; 2],
    /// Size of the inputs of all layers.
    width: usize,
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
    gate: Linear<T>,
    output: Linear<T>,
    norm: Norm<T>,
    /// Number of the first of its inputs among those of all layers.
    first: usize,
    width: usize,
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

impl WeightLookup<'_> {
    /// Returns what makes the inputs of all layers, if they have any.
    ///
    /// # Errors
    /// When a weight is missing, has another shape or dtype, or cannot be read.
    pub(crate) fn input_table<T: Real>(&self) -> Result<Option<InputTable<T>>> {
        let make = |inputs: LayerInputs| {
            let width = size_in_memory(inputs.width)?;
            let factors = [inputs.embedding_factor(), LayerInputs::projection_factor(self.decoder.dim())];
            Ok::<_, Error>(InputTable {
                embedding: self.matrix(Weight::LayerEmbedding)?,
                projection: self.linear(Weight::LayerProjection, None)?,
                norm: self.norm(&[Weight::LayerProjectionNorm], None, width)?,
                factors: factors.map(T::from_f64),
                width: checked_product(&[width, self.dims.n_layers])?,
            })
        };
        self.decoder.block().layer_inputs.map(make).transpose()
    }

    /// Returns what a layer makes of its input, if it has one.
    ///
    /// # Errors
    /// When a weight is missing, has another shape or dtype, or cannot be read.
    pub(crate) fn layer_input<T: Real>(&self, layer: u64) -> Result<Option<LayerInput<T>>> {
        let make = |inputs: LayerInputs| {
            let width = size_in_memory(inputs.width)?;
            let norm = Weight::Layer { layer, part: LayerPart::LayerInputNorm };
            Ok::<_, Error>(LayerInput {
                gate: self.layer_linear(layer, LayerPart::LayerInputGate)?,
                output: self.layer_linear(layer, LayerPart::LayerInputOutput)?,
                norm: self.norm(&[norm], None, self.dims.dim)?,
                first: checked_product(&[width, size_in_memory(layer)?])?,
                width,
            })
        };
        self.decoder.block().layer_inputs.map(make).transpose()
    }
}
