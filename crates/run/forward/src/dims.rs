//! Sizes of a decoder as the forward uses them.

use decoder::Decoder;

use crate::Result;
use crate::memory::size_in_memory;
use crate::mixed_heads::{HeadSizes, KeySizes};
use crate::states::{StateSizes, state_sizes};

#[derive(Clone, Copy, Debug)]
pub(crate) struct DecoderDims {
    pub(crate) dim: usize,
    pub(crate) hidden: usize,
    pub(crate) vocab: usize,
    pub(crate) n_layers: usize,
    pub(crate) n_heads: usize,
    /// Layers with keys and values, but for those of `near`.
    pub(crate) far: KeySizes,
    /// Layers with a window, if their heads have other sizes.
    pub(crate) near: Option<KeySizes>,
    /// States of layers of gated `DeltaNet`.
    pub(crate) states: Option<StateSizes>,
}

impl DecoderDims {
    pub(crate) fn new(decoder: &Decoder) -> Result<Self> {
        let (far, near) = decoder.cache_layers();
        let widest = (0..decoder.n_layers()).any(|layer| decoder.doubles_hidden(layer));
        let hidden = decoder.hidden().saturating_mul(if widest { 2 } else { 1 });
        Ok(Self {
            dim: size_in_memory(decoder.dim())?,
            hidden: size_in_memory(hidden)?,
            vocab: size_in_memory(decoder.vocab())?,
            n_layers: size_in_memory(decoder.n_layers())?,
            n_heads: size_in_memory(decoder.n_heads())?,
            far: KeySizes::new(far)?,
            near: near.map(KeySizes::new).transpose()?,
            states: decoder.block().delta_net.as_ref().map(state_sizes).transpose()?,
        })
    }

    /// Returns the sizes of the heads of both kinds of layers.
    pub(crate) fn head_sizes(&self) -> impl Iterator<Item = HeadSizes> {
        [Some(self.far), self.near].into_iter().flatten().map(|kind| kind.of_heads(self.n_heads))
    }
}
