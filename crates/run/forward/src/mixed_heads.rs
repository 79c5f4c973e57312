//! Heads whose sizes depend on the layer, and the places of their keys and values in a cache.
//!
//! Facts: [`decoder::MixedHeads`]; `mixed_heads.rs` of the TorchScript text.

use decoder::CacheLayers;

use crate::Result;
use crate::memory::size_in_memory;

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
