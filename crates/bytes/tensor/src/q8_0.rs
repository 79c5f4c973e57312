//! Tensors whose numbers are those of blocks of `Q8_0`: 32 numbers have a float16 scale, and then a signed code of eight bits each.
//!
//! Facts: `quants.py` of the Python package `gguf`.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use kernels::{decode_q8_block, vectorize};

use crate::compute::{Compute, Inputs};
use crate::{Dtype, Storage, StorageId, Tensor, contiguous_strides};

/// Numbers of a block.
const LEN: u64 = 32;
/// Bytes of a block.
const BYTES: u64 = 34;

/// Returns the bytes of this many numbers; `None` if they are not whole blocks.
pub(crate) fn block_bytes(numbers: u64) -> Option<u64> {
    rescaled(numbers, LEN, BYTES)
}

/// Returns the elements of as many blocks as `elements` are, of which each has `from` and gets `to`; `None` if they are not whole blocks.
fn rescaled(elements: u64, from: u64, to: u64) -> Option<u64> {
    elements.checked_div(from).filter(|_| elements.is_multiple_of(from))?.checked_mul(to)
}

/// Storages of blocks of `Q8_0`, each with the one storage of its numbers, so that tensors that share blocks share numbers.
#[derive(Clone, Debug, Default)]
pub struct BlockStorages(HashMap<StorageId, Storage>);

impl BlockStorages {
    /// Adds a storage, unless its bytes are not whole blocks.
    pub fn add(&mut self, blocks: &Storage) {
        if let Some(numbers) = BlockNumbers::new(blocks) {
            self.0.entry(blocks.id()).or_insert_with(|| Storage::computed(Arc::new(numbers)));
        }
    }

    /// Returns the float32 numbers of a tensor of bytes, with 32 for each 34 along the dimension of neighbours. `None` if its storage was
    /// not added, or it does not have whole blocks.
    pub fn numbers(&self, blocks: &Tensor) -> Option<Tensor> {
        let numbers = self.0.get(&blocks.storage().id()).filter(|_| blocks.dtype() == Dtype::UInt8)?;
        blocks.with_other_blocks(blocks.dim_of_blocks(BYTES)?, (BYTES, LEN), Dtype::Float32, numbers.clone())
    }
}

impl Tensor {
    /// Returns the float32 numbers of blocks of `Q8_0`, which are computed whenever they are read: 32 in the last dimension for each 34
    /// bytes. `None` if the tensor does not have the bytes of whole blocks in C order. Files that have a form for blocks keep these
    /// numbers as blocks; see [`kept_q8_0_blocks`](Self::kept_q8_0_blocks).
    ///
    /// ```
    /// use tensor::{Dtype, Storage, Tensor};
    ///
    /// // The scale 1, and 32 codes of 2.
    /// let bytes = [[0, 0x3c].as_slice(), &[2; 32]].concat();
    /// let blocks = Tensor::new(Dtype::UInt8, vec![1, 34], vec![34, 1], 0, Storage::owned(bytes))?;
    /// let numbers = Tensor::from_q8_0_blocks(&blocks).expect("a whole block");
    /// assert_eq!((numbers.dtype(), numbers.shape()), (Dtype::Float32, [1, 32].as_slice()));
    /// assert_eq!(numbers.q8_0_blocks().map(|blocks| blocks.shape().to_vec()), Some(vec![1, 34]));
    /// # Ok::<(), tensor::Error>(())
    /// ```
    pub fn from_q8_0_blocks(blocks: &Self) -> Option<Self> {
        if blocks.dtype() != Dtype::UInt8 || !blocks.is_contiguous() {
            return None;
        }
        let (all, span) = (blocks.storage(), blocks.span());
        let own = if span == (0..all.len()) { all.clone() } else { all.slice(span)? };
        let numbers = Storage::computed(Arc::new(BlockNumbers::new(&own)?));
        let shape = blocks.shape().to_vec();
        let last = shape.len().checked_sub(1)?;
        let stride = contiguous_strides(&shape);
        let blocks = Self::new(Dtype::UInt8, shape, stride, 0, own).ok()?;
        blocks.with_other_blocks(last, (BYTES, LEN), Dtype::Float32, numbers)
    }

    /// Returns the blocks of `Q8_0` that the numbers are computed from, as bytes: 34 in the last dimension for each 32 numbers. `None` if
    /// the numbers are stored or computed otherwise, or rows are not whole blocks.
    pub fn q8_0_blocks(&self) -> Option<Self> {
        let compute = self.storage().compute().filter(|_| self.dtype() == Dtype::Float32)?;
        let last = self.shape().len().checked_sub(1)?;
        self.with_other_blocks(last, (LEN, BYTES), Dtype::UInt8, compute.q8_0_blocks()?)
    }

    /// Returns the blocks of numbers that [`from_q8_0_blocks`](Self::from_q8_0_blocks) or [`BlockStorages`] made, as bytes: 34 for each 32
    /// numbers along the dimension of neighbours, which need not be the last. `None` for all other numbers.
    pub fn kept_q8_0_blocks(&self) -> Option<Self> {
        let compute = self.storage().compute().filter(|compute| compute.keeps_q8_0_blocks())?;
        let dim = self.dim_of_blocks(LEN).filter(|_| self.dtype() == Dtype::Float32)?;
        self.with_other_blocks(dim, (LEN, BYTES), Dtype::UInt8, compute.q8_0_blocks()?)
    }

    /// Returns the dimension whose elements are neighbours and form blocks of `len`.
    fn dim_of_blocks(&self, len: u64) -> Option<usize> {
        let mut dims = self.shape().iter().zip(self.stride());
        dims.rposition(|(size, step)| *step == 1 && *size > 0 && size.is_multiple_of(len))
    }

    /// Returns the same blocks in another form, over `storage`: along the dimension `dim`, `to` elements for each `from`.
    fn with_other_blocks(
        &self,
        dim: usize,
        (from, to): (u64, u64),
        dtype: Dtype,
        storage: Storage,
    ) -> Option<Self> {
        if self.storage().is_swapped() || self.stride().get(dim) != Some(&1) {
            return None;
        }
        let (mut shape, mut stride) = (self.shape().to_vec(), self.stride().to_vec());
        for (place, (size, step)) in shape.iter_mut().zip(&mut stride).enumerate() {
            let scaled = if place == dim { size } else { step };
            *scaled = rescaled(*scaled, from, to)?;
        }
        Self::new(dtype, shape, stride, rescaled(self.storage_offset(), from, to)?, storage).ok()
    }
}

/// Computation of the numbers of blocks.
#[derive(Debug)]
struct BlockNumbers {
    inputs: [Storage; 1],
    nbytes: u64,
}

impl BlockNumbers {
    fn new(blocks: &Storage) -> Option<Self> {
        let nbytes = rescaled(blocks.len(), BYTES, LEN)?.checked_mul(Dtype::Float32.size())?;
        Some(Self { inputs: [blocks.clone()], nbytes })
    }
}

impl Compute for BlockNumbers {
    fn len(&self) -> u64 {
        self.nbytes
    }

    fn inputs(&self) -> &[Storage] {
        &self.inputs
    }

    fn granule(&self) -> u64 {
        LEN.saturating_mul(Dtype::Float32.size())
    }

    fn read_at(&self, inputs: &mut Inputs<'_>, buffer: &mut [u8], offset: u64) -> byte_source::Result<()> {
        let before = offset.checked_div(Dtype::Float32.size()).and_then(block_bytes);
        let start = before.ok_or(io::ErrorKind::InvalidInput)?;
        let (numbers, _) = buffer.as_chunks_mut::<128>();
        let mut blocks = vec![[0; 34]; numbers.len()];
        inputs.read(0, blocks.as_flattened_mut(), start)?;
        vectorize(|| {
            for (numbers, block) in numbers.iter_mut().zip(&blocks) {
                let decoded = numbers.as_chunks_mut::<4>().0.iter_mut().zip(decode_q8_block(block));
                for (number, decoded) in decoded {
                    *number = decoded.to_le_bytes();
                }
            }
        });
        Ok(())
    }

    fn q8_0_blocks(&self) -> Option<Storage> {
        self.inputs.first().cloned()
    }

    fn keeps_q8_0_blocks(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use byte_source::Blob;

    use super::*;

    fn bytes(tensor: &Tensor) -> Vec<u8> {
        let mut out = Vec::new();
        tensor.gathered().write_to(&mut out).expect("memory can be read");
        out
    }

    /// Returns four rows of two blocks, from the third byte of a storage on.
    fn numbers() -> Tensor {
        let stored: Vec<u8> = (0..=u8::MAX).map(|byte| byte.wrapping_mul(37) % 119).chain(0..18).collect();
        let blocks = Tensor::new(Dtype::UInt8, vec![4, 68], vec![68, 1], 2, Storage::owned(stored));
        Tensor::from_q8_0_blocks(&blocks.expect("inside")).expect("whole blocks")
    }

    /// Compares a tensor with the numbers of its blocks.
    fn compare(tensor: &Tensor) {
        let blocks = tensor.q8_0_blocks().expect("blocks");
        let blocks = blocks.reshaped(blocks.shape()).expect("the same shape");
        let again = Tensor::from_q8_0_blocks(&blocks).expect("whole blocks");
        assert_eq!(again.shape(), tensor.shape());
        assert_eq!(bytes(&again), bytes(tensor));
    }

    #[test]
    fn parts_and_rearranged_rows_have_their_blocks() {
        let whole = numbers();
        compare(&whole);
        let view = |shape: &[u64], stride: &[u64], offset| {
            Tensor::new(Dtype::Float32, shape.to_vec(), stride.to_vec(), offset, whole.storage().clone())
                .expect("inside")
        };
        compare(&view(&[2, 64], &[64, 1], 128));
        compare(&view(&[4, 32], &[64, 1], 32));
        compare(&view(&[2, 2, 32], &[128, 32, 1], 0));
        compare(&whole.with_grid_transposed(1, NonZeroU64::new(2).expect("2")).expect("2 × 2 rows"));
        compare(&Tensor::concat(0, &[whole.clone(), view(&[1, 64], &[64, 1], 64)]).expect("five rows"));
        compare(&Tensor::concat(1, &[view(&[4, 32], &[64, 1], 32), whole.clone()]).expect("three blocks"));
        for other in [view(&[64, 4], &[1, 64], 0), view(&[4, 16], &[64, 1], 0), view(&[2, 32], &[64, 1], 16)]
        {
            assert!(other.q8_0_blocks().is_none(), "{:?} {:?}", other.shape(), other.stride());
        }
        assert!(whole.cast(Dtype::Float16).expect("it casts").q8_0_blocks().is_none());
    }

    #[test]
    fn tensors_of_one_storage_share_their_numbers() {
        let storage = Storage::owned((0..=u8::MAX).map(|byte| byte % 119).cycle().take(272).collect());
        let blocks = |shape: &[u64], stride: &[u64], offset| {
            Tensor::new(Dtype::UInt8, shape.to_vec(), stride.to_vec(), offset, storage.clone())
                .expect("inside")
        };
        let mut storages = BlockStorages::default();
        let whole = blocks(&[4, 68], &[68, 1], 0);
        assert!(storages.numbers(&whole).is_none());
        storages.add(&storage);
        storages.add(&Storage::owned(vec![0; 35]));
        let numbers = storages.numbers(&whole).expect("whole blocks");
        for (tensor, shape, stride, offset) in [
            (blocks(&[2, 68], &[68, 1], 68), [2, 64], [64, 1], 64),
            (blocks(&[68, 4], &[1, 68], 0), [64, 4], [1, 64], 0),
            (blocks(&[34, 1], &[1, 34], 0), [32, 1], [1, 32], 0),
        ] {
            let part = storages.numbers(&tensor).expect("whole blocks");
            assert_eq!(
                (part.shape(), part.stride(), part.storage_offset()),
                (&shape[..], &stride[..], offset)
            );
            assert_eq!(part.storage().id(), numbers.storage().id());
            assert_eq!(part.kept_q8_0_blocks().expect("as they were").view_id(), tensor.view_id());
        }
        for other in [blocks(&[4, 34], &[68, 1], 2), blocks(&[4, 33], &[68, 1], 0), blocks(&[4], &[68], 0)] {
            assert!(storages.numbers(&other).is_none(), "{other:?}");
        }
        assert!(numbers.cast(Dtype::Float16).expect("it casts").kept_q8_0_blocks().is_none());
        let (whole, joined) = (&numbers, Tensor::concat(0, &[numbers.clone(), numbers.clone()]));
        assert!(whole.kept_q8_0_blocks().is_some());
        assert!(joined.expect("eight rows").kept_q8_0_blocks().is_none());
    }

    #[test]
    fn bytes_that_are_not_whole_blocks_have_no_numbers() {
        for (dtype, shape) in
            [(Dtype::UInt8, vec![2, 35]), (Dtype::Int8, vec![2, 34]), (Dtype::UInt8, vec![])]
        {
            let tensor =
                Tensor::new(dtype, shape.clone(), contiguous_strides(&shape), 0, Storage::owned(vec![0; 70]));
            assert!(Tensor::from_q8_0_blocks(&tensor.expect("inside")).is_none(), "{shape:?}");
        }
    }
}
