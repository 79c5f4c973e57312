//! Weights of the inputs of each layer.

use decoder::{LayerInputs, LayerPart, Weight};

use crate::layer_inputs::{InputTable, LayerInput};
use crate::memory::{checked_product, size_in_memory};
use crate::number::Real;
use crate::weights::WeightLookup;
use crate::{Error, Result};

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
