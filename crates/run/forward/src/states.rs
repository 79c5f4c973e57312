//! States of the layers of gated `DeltaNet` in a cache: what their convolutions still read, and a matrix for each head.
//!
//! Facts: the ports `past_conv` and `past_state` of the TorchScript module have the shapes [layers, batch, channels, taps]
//! and [layers, batch, heads, key size, value size] in f32.

use decoder::{DeltaNet, DeltaSizes};
use tensor::{Dtype, Storage, Tensor, contiguous_strides};

use crate::memory::{checked_product, gather_bytes, size_in_memory, zeros};
use crate::number::Real;
use crate::{Problem, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateSizes {
    /// Layers of `DeltaNet`.
    pub(crate) layers: usize,
    pub(crate) channels: usize,
    /// Tokens before the present one that the convolution reads.
    pub(crate) taps: usize,
    pub(crate) heads: usize,
    pub(crate) key_dim: usize,
    pub(crate) value_dim: usize,
}

impl StateSizes {
    /// Returns the shapes of the two ports.
    fn shapes(self, batch: usize) -> [Vec<u64>; 2] {
        let Self { layers, channels, taps, heads, key_dim, value_dim } = self;
        let shape = |sizes: &[usize]| sizes.iter().map(|size| *size as u64).collect();
        [shape(&[layers, batch, channels, taps]), shape(&[layers, batch, heads, key_dim, value_dim])]
    }

    /// Returns the sizes in bytes of a sequence's states, of numbers of `size` bytes.
    pub(crate) fn nbytes(self, size: usize) -> usize {
        let Self { layers, channels, taps, heads, key_dim, value_dim } = self;
        let matrices = [heads, key_dim, value_dim].into_iter().fold(1, usize::saturating_mul);
        // There are two of each.
        let each = channels.saturating_mul(taps).saturating_add(matrices).saturating_mul(2);
        each.saturating_mul(layers).saturating_mul(size)
    }
}

/// Returns the sizes of the states of a decoder's layers.
///
/// # Errors
/// When one does not fit in memory.
pub(crate) fn state_sizes(delta_net: &DeltaNet) -> Result<StateSizes> {
    let DeltaSizes { layers, channels, taps, heads, key_dim, value_dim } = delta_net.sizes();
    Ok(StateSizes {
        layers: size_in_memory(layers)?,
        channels: size_in_memory(channels)?,
        taps: size_in_memory(taps)?,
        heads: size_in_memory(heads)?,
        key_dim: size_in_memory(key_dim)?,
        value_dim: size_in_memory(value_dim)?,
    })
}

/// States of one layer for all sequences.
#[derive(Clone, Debug)]
pub(crate) struct LayerStates<T> {
    /// Shape [batch, channels, taps].
    pub(crate) conv: Vec<T>,
    /// Shape [batch, heads, `key_dim`, `value_dim`].
    pub(crate) matrices: Vec<T>,
}

/// States of all layers: those after the tokens of the cache, and those that a piece of a pass makes of them.
#[derive(Clone, Debug)]
pub(crate) struct States<T> {
    layers: Vec<[LayerStates<T>; 2]>,
}

impl<T: Real> States<T> {
    /// Creates the states of `batch` sequences without tokens.
    ///
    /// # Errors
    /// When they do not fit in memory.
    pub(crate) fn new(sizes: Option<StateSizes>, batch: usize) -> Result<Self> {
        let Some(sizes) = sizes else { return Ok(Self { layers: Vec::new() }) };
        let StateSizes { layers, channels, taps, heads, key_dim, value_dim } = sizes;
        // The total size is checked first, so that an absurd number fails before anything is allocated.
        checked_product(&[layers, batch, channels, taps, 2, size_of::<T>()])?;
        checked_product(&[layers, batch, heads, key_dim, value_dim, 2, size_of::<T>()])?;
        let each = || {
            Ok::<_, crate::Error>(LayerStates {
                conv: zeros(checked_product(&[batch, channels, taps])?)?,
                matrices: zeros(checked_product(&[batch, heads, key_dim, value_dim])?)?,
            })
        };
        let layers = (0..layers).map(|_| Ok::<_, crate::Error>([each()?, each()?])).collect::<Result<_>>()?;
        Ok(Self { layers })
    }

    /// Replaces the states by those of the ports.
    ///
    /// # Errors
    /// When a tensor has another shape or dtype, or cannot be read.
    pub(crate) fn read(
        &mut self,
        sizes: StateSizes,
        batch: usize,
        conv: &Tensor,
        state: &Tensor,
    ) -> Result<()> {
        let expected = sizes.shapes(batch);
        let fits =
            |(it, expected): (&Tensor, &Vec<u64>)| it.shape() == *expected && it.dtype() == Dtype::Float32;
        if ![conv, state].into_iter().zip(&expected).all(fits) {
            let found = [conv, state].map(|it| (it.dtype(), it.shape().to_vec()));
            return Err(Problem::StateShape { found, expected }.into());
        }
        let [conv, state] = [gather_bytes(conv)?, gather_bytes(state)?];
        let (conv, state) = (conv.as_chunks::<4>().0, state.as_chunks::<4>().0);
        let (mut conv, mut state) = (conv.iter(), state.iter());
        for [now, _] in &mut self.layers {
            for (to, from) in [(&mut now.conv, &mut conv), (&mut now.matrices, &mut state)] {
                to.iter_mut().zip(from).for_each(|(to, from)| *to = T::from_f32(f32::from_le_bytes(*from)));
            }
        }
        Ok(())
    }

    /// Returns the states as f32 tensors in the shapes of the ports.
    ///
    /// # Errors
    /// When they do not fit in memory.
    pub(crate) fn tensors(&self, sizes: StateSizes, batch: usize) -> Result<[Tensor; 2]> {
        let [conv, state] = sizes.shapes(batch);
        let conv_numbers = self.layers.iter().flat_map(|[now, _]| &now.conv);
        let state_numbers = self.layers.iter().flat_map(|[now, _]| &now.matrices);
        Ok([tensor(conv, conv_numbers)?, tensor(state, state_numbers)?])
    }

    /// Returns the states of a layer, and those to be made of them.
    pub(crate) fn layer_mut(&mut self, layer: usize) -> Option<(&LayerStates<T>, &mut LayerStates<T>)> {
        self.layers.get_mut(layer).map(|[now, next]| (&*now, next))
    }

    /// Makes the states that a piece has computed those of the cache.
    pub(crate) fn advance(&mut self) {
        self.layers.iter_mut().for_each(|[now, next]| std::mem::swap(now, next));
    }
}

fn tensor<'n, T: Real>(shape: Vec<u64>, numbers: impl Iterator<Item = &'n T>) -> Result<Tensor> {
    let len = shape.iter().fold(4, |product: u64, size| product.saturating_mul(*size));
    let mut bytes = Vec::new();
    let len = usize::try_from(len).map_err(|_| Problem::Memory { nbytes: len })?;
    bytes.try_reserve_exact(len).map_err(|_| Problem::Memory { nbytes: len as u64 })?;
    numbers.for_each(|number| bytes.extend(number.to_f32().to_le_bytes()));
    let stride = contiguous_strides(&shape);
    Ok(Tensor::new(Dtype::Float32, shape, stride, 0, Storage::owned(bytes))?)
}
