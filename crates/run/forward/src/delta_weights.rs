//! Lookup of the weights of gated `DeltaNet`.

use decoder::{LayerPart, Weight};

use crate::Result;
use crate::delta_net::{DeltaNet, DeltaProjections};
use crate::memory::size_in_memory;
use crate::norm::Norm;
use crate::number::Real;
use crate::states::state_sizes;
use crate::weights::WeightLookup;
use crate::{Error, Problem};

impl WeightLookup<'_> {
    /// Returns the number of a layer among those of its kind.
    pub(crate) fn place(&self, layer: u64) -> Result<usize> {
        let block = self.decoder.block();
        let kind = block.has_delta_net(layer);
        size_in_memory((0..layer).filter(|other| block.has_delta_net(*other) == kind).count() as u64)
    }

    /// Returns the weights of a layer of gated `DeltaNet`.
    ///
    /// # Errors
    /// When a weight is missing, has another shape or dtype, or cannot be read.
    pub(crate) fn delta_net<T: Real>(&self, layer: u64) -> Result<DeltaNet<T>> {
        let linear = |part| self.layer_linear(layer, part);
        let delta_net = self.decoder.block().delta_net.as_ref();
        let delta_net = delta_net.ok_or_else(|| Error::from(Problem::CacheMismatch))?;
        let sizes = state_sizes(delta_net)?;
        let projections = if delta_net.fused {
            let both = [linear(LayerPart::DeltaQkvz)?, linear(LayerPart::DeltaBa)?];
            DeltaProjections::Fused(Box::new(both))
        } else {
            let each = [
                linear(LayerPart::DeltaQkv)?,
                linear(LayerPart::DeltaZ)?,
                linear(LayerPart::DeltaB)?,
                linear(LayerPart::DeltaA)?,
            ];
            DeltaProjections::Apart(Box::new(each))
        };
        let logarithms = self.vector::<f64>(Weight::Layer { layer, part: LayerPart::DeltaLog })?;
        Ok(DeltaNet {
            projections,
            kernel: self.vector(Weight::Layer { layer, part: LayerPart::DeltaConv })?,
            decays: logarithms.into_iter().map(libm::exp).collect(),
            biases: self.vector(Weight::Layer { layer, part: LayerPart::DeltaBias })?,
            norm: Norm {
                weight: self.vector(Weight::Layer { layer, part: LayerPart::DeltaNorm })?,
                bias: None,
                eps: T::from_f64(self.decoder.norm_eps()),
                is_centred: false,
                part: sizes.value_dim,
            },
            output: linear(LayerPart::DeltaOut)?,
            key_heads: size_in_memory(delta_net.key_heads)?,
            sizes,
            place: self.place(layer)?,
        })
    }
}
