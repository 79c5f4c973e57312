//! Weights of attention with heads of two sizes, and the place of a layer's keys and values.
//!
//! Facts: [`decoder::MixedHeads`]; `mixed_heads.rs` of the TorchScript text.

use decoder::{LayerPart, Weight};

use crate::Result;
use crate::memory::size_in_memory;
use crate::mixed_heads::{CachePlace, HeadSizes};
use crate::norm::Norm;
use crate::number::Real;
use crate::projections::Projections;
use crate::weights::WeightLookup;

impl WeightLookup<'_> {
    /// Returns the place of a layer's keys and values, which may be those of another layer.
    pub(crate) fn cache_place(&self, layer: u64) -> Result<CachePlace> {
        let key_layer = self.key_layers.get(size_in_memory(layer)?).copied().unwrap_or(layer);
        if self.dims.near.is_none() {
            return Ok(CachePlace { is_near: false, number: self.place(key_layer)? });
        }
        let has_window = |layer: u64| self.decoder.windows().window_of(layer).is_some();
        let is_near = has_window(layer);
        let number = (0..key_layer).filter(|other| has_window(*other) == is_near).count();
        Ok(CachePlace { is_near, number })
    }

    /// Returns the sizes of a layer's heads.
    pub(crate) fn head_sizes(&self, layer: u64) -> Result<HeadSizes> {
        let (kv_heads, head_dim) = (self.decoder.n_kv_heads_of(layer), self.decoder.head_dim_of(layer));
        let kv_heads = size_in_memory(kv_heads)?;
        Ok(HeadSizes { kv_heads, group: self.dims.n_heads / kv_heads, head_dim: size_in_memory(head_dim)? })
    }

    /// Returns the projections of a layer with heads of its own sizes; `None` if its layers are all alike.
    pub(crate) fn mixed_projections<T: Real>(&self, layer: u64) -> Result<Option<Projections<T>>> {
        if self.decoder.block().mixed_heads.is_none() {
            return Ok(None);
        }
        let linear = |part| self.layer_linear(layer, part);
        let queries = linear(LayerPart::Wq)?;
        Ok(Some(if self.decoder.shares_keys(layer) {
            Projections::Queries(queries)
        } else if self.decoder.has_keys_as_values(layer) {
            Projections::KeysAsValues(Box::new([queries, linear(LayerPart::Wk)?]))
        } else {
            Projections::Three(Box::new([queries, linear(LayerPart::Wk)?, linear(LayerPart::Wv)?]))
        }))
    }

    /// Returns a norm without a weight over `part` numbers.
    pub(crate) fn bare_norm<T: Real>(&self, part: usize) -> Norm<T> {
        let eps = T::from_f64(self.decoder.norm_eps());
        Norm { weight: vec![T::ONE; part], bias: None, eps, is_centred: false, part }
    }

    /// Returns the number that multiplies the result of a layer.
    pub(crate) fn layer_scalar<T: Real>(&self, layer: u64) -> Result<Option<T>> {
        if !self.decoder.block().layer_scalars {
            return Ok(None);
        }
        let numbers = self.vector(Weight::Layer { layer, part: LayerPart::LayerScalar })?;
        Ok(numbers.first().copied())
    }
}
