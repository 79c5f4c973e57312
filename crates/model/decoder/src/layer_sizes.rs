//! Sizes of layers that are not all alike, and of their part of a cache.
//!
//! Facts: [`MixedHeads`].

use crate::mixed_heads::MixedHeads;
use crate::sizes::Decoder;

/// Sizes of the cached keys and values of one kind of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLayers {
    /// Number of layers with keys and values of their own.
    pub layers: u64,
    /// Number of heads of keys and values.
    pub kv_heads: u64,
    /// Size of a head.
    pub head_dim: u64,
}

impl Decoder {
    /// Returns the sizes of heads in layers without a window, if they are others.
    fn wide(&self, layer: u64) -> Option<&MixedHeads> {
        self.block().mixed_heads.as_ref().filter(|_| self.windows().window_of(layer).is_none())
    }

    /// Returns the size of a head in a layer.
    pub fn head_dim_of(&self, layer: u64) -> u64 {
        self.wide(layer).map_or_else(|| self.head_dim(), |mixed| mixed.head_dim)
    }

    /// Returns the number of heads of keys and values in a layer.
    pub fn n_kv_heads_of(&self, layer: u64) -> u64 {
        self.wide(layer).map_or_else(|| self.n_kv_heads(), |mixed| mixed.kv_heads)
    }

    /// Returns the number of rotary dimensions per head that turn with one of the rotary embeddings.
    pub fn rotated_by(&self, rope: usize) -> u64 {
        let mixed = self.block().mixed_heads.filter(|_| rope == 0);
        mixed.map_or_else(|| self.rotated(), |mixed| mixed.head_dim)
    }

    /// Returns true if a layer uses the keys and values of an earlier one.
    pub fn shares_keys(&self, layer: u64) -> bool {
        self.block().mixed_heads.is_some_and(|mixed| layer >= mixed.first_shared)
    }

    /// Returns true if a layer has feed-forward layers of twice the width.
    pub fn doubles_hidden(&self, layer: u64) -> bool {
        self.block().mixed_heads.is_some_and(|mixed| mixed.doubles_hidden) && self.shares_keys(layer)
    }

    /// Returns true if the values of a layer are its keys before their norm.
    pub fn has_keys_as_values(&self, layer: u64) -> bool {
        self.wide(layer).is_some_and(|mixed| mixed.keys_are_values)
    }

    /// Returns for each layer the one whose keys and values it uses, which may be itself.
    pub fn key_layers(&self) -> Vec<u64> {
        let mut last = [0; 2];
        let source = |layer| {
            let [with, without] = &mut last;
            let last = if self.windows().window_of(layer).is_some() { with } else { without };
            if !self.shares_keys(layer) {
                *last = layer;
            }
            *last
        };
        (0..self.n_layers()).map(source).collect()
    }

    /// Returns the sizes of the cached keys and values: of all layers, or of those without a window and of those with one.
    pub fn cache_layers(&self) -> (CacheLayers, Option<CacheLayers>) {
        let (kv_heads, head_dim) = (self.n_kv_heads(), self.head_dim());
        let block = self.block();
        let Some(mixed) = block.mixed_heads else {
            let layers = (0..self.n_layers()).filter(|layer| !block.has_delta_net(*layer)).count() as u64;
            return (CacheLayers { layers, kv_heads, head_dim }, None);
        };
        let own = || 0..mixed.first_shared.min(self.n_layers());
        let near = own().filter(|layer| self.windows().window_of(*layer).is_some()).count() as u64;
        let layers = own().count() as u64;
        let far = CacheLayers {
            layers: layers.saturating_sub(near),
            kv_heads: mixed.kv_heads,
            head_dim: mixed.head_dim,
        };
        (far, (near > 0).then_some(CacheLayers { layers: near, kv_heads, head_dim }))
    }
}
