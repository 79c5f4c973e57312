//! Heads whose sizes depend on the layer, and the places of their keys and values in a cache.
//!
//! Facts: [`decoder::MixedHeads`]; `mixed_heads.rs` of the TorchScript text.

use decoder::{CacheLayers, LayerPart, Weight};

use crate::attention::Queries;
use crate::memory::size_in_memory;
use crate::norm::Norm;
use crate::number::Real;
use crate::projections::Projections;
use crate::weights::WeightLookup;
use crate::{Error, Result};

/// Sizes of the keys and values of one kind of layers in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeySizes {
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    pub(crate) head_dim: usize,
}

/// Place of a layer's keys and values in a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachePlace {
    /// True for a layer of [`CacheSizes::near`](crate::cache::CacheSizes::near).
    pub(crate) is_near: bool,
    /// Number of the layer among those of its kind.
    pub(crate) number: usize,
}

/// Sizes of the heads of a layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadSizes {
    pub(crate) kv_heads: usize,
    /// Number of query heads for each key-value head.
    pub(crate) group: usize,
    pub(crate) head_dim: usize,
}

impl KeySizes {
    pub(crate) fn new(sizes: CacheLayers) -> Result<Self> {
        Ok(Self {
            layers: size_in_memory(sizes.layers)?,
            heads: size_in_memory(sizes.kv_heads)?,
            head_dim: size_in_memory(sizes.head_dim)?,
        })
    }

    /// Returns the shape of the ports' tensors.
    pub(crate) fn shape(self, batch: usize, tokens: usize) -> [usize; 5] {
        [self.layers, batch, tokens, self.heads, self.head_dim]
    }

    /// Returns the sizes of heads in these layers, of which `n_heads` have queries.
    pub(crate) fn of_heads(self, n_heads: usize) -> HeadSizes {
        HeadSizes { kv_heads: self.heads, group: n_heads / self.heads, head_dim: self.head_dim }
    }
}

impl Queries {
    /// Returns the same rows with heads of other sizes.
    pub(crate) fn with_heads(self, heads: HeadSizes) -> Self {
        let HeadSizes { kv_heads, group, head_dim } = heads;
        Self { kv_heads, group, head_dim, ..self }
    }
}

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
        Ok::<_, Error>(numbers.first().copied())
    }
}
