//! Tensors whose numbers are those of blocks of `Q8_0`: 32 numbers have a float16 scale, and then a signed code of eight bits each.
//!
//! Facts: `quants.py` of the Python package `gguf`.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use kernels::{decode_q8_block, vectorize};

use crate::compute::{Compute, Inputs};
use crate::{Dtype, Storage, Tensor, contiguous_strides};

/// Numbers of a block.
const LEN: u64 = 32;
/// Bytes of a block.
const BYTES: u64 = 34;

/// Returns the bytes of this many numbers; `None` if they are not whole blocks.
pub(crate) fn block_bytes(numbers: u64) -> Option<u64> {
    numbers.checked_div(LEN).filter(|_| numbers.is_multiple_of(LEN))?.checked_mul(BYTES)
}

/// Returns the numbers of this many bytes; `None` if they are not whole blocks.
fn numbers_in(bytes: u64) -> Option<u64> {
    bytes.checked_div(BYTES).filter(|_| bytes.is_multiple_of(BYTES))?.checked_mul(LEN)
}

impl Tensor {
    /// Returns the float32 numbers of blocks of `Q8_0`, which are computed whenever they are read: 32 in the last dimension for each 34
    /// bytes. `None` if the tensor does not have the bytes of whole blocks in C order.
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
        let mut shape = blocks.shape().to_vec();
        let cols = shape.last_mut()?;
        *cols = numbers_in(*cols)?;
        let numbers = blocks.numel().checked_div(BYTES)?.checked_mul(LEN)?;
        let nbytes = numbers.checked_mul(Dtype::Float32.size())?;
        let inputs = [blocks.storage().clone()];
        let compute = BlockNumbers { inputs, blocks: blocks.span(), nbytes };
        let stride = contiguous_strides(&shape);
        Self::new(Dtype::Float32, shape, stride, 0, Storage::computed(Arc::new(compute))).ok()
    }

    /// Returns the blocks of `Q8_0` that the numbers are computed from, as bytes: 34 in the last dimension for each 32 numbers. `None` if
    /// the numbers are stored or computed otherwise, or rows are not whole blocks.
    pub fn q8_0_blocks(&self) -> Option<Self> {
        let (last, outer) = self.stride().split_last().filter(|_| self.dtype() == Dtype::Float32)?;
        let mut shape = self.shape().to_vec();
        let cols = shape.last_mut().filter(|_| *last == 1)?;
        *cols = block_bytes(*cols)?;
        let mut stride: Vec<u64> = outer.iter().map(|step| block_bytes(*step)).collect::<Option<_>>()?;
        stride.push(1);
        let offset = block_bytes(self.storage_offset())?;
        let compute = self.storage().compute().filter(|_| !self.storage().is_swapped())?;
        Self::new(Dtype::UInt8, shape, stride, offset, compute.q8_0_blocks()?).ok()
    }
}

/// Computation of the numbers of blocks.
#[derive(Debug)]
struct BlockNumbers {
    inputs: [Storage; 1],
    /// Range of the blocks in their storage, in bytes.
    blocks: Range<u64>,
    nbytes: u64,
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
        let start = before
            .and_then(|before| before.checked_add(self.blocks.start))
            .ok_or(io::ErrorKind::InvalidInput)?;
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
        let storage = self.inputs.first()?;
        if self.blocks == (0..storage.len()) {
            Some(storage.clone())
        } else {
            storage.slice(self.blocks.clone())
        }
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
