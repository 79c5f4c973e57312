//! Gathering of the elements of a strided view in C order.

use std::io;

use byte_source::{Blob, Sink, WINDOW, Window};

use crate::Tensor;
use crate::blocks::BlockCache;

/// Elements of a tensor in C order; [`Tensor::gathered`] creates them.
#[derive(Debug)]
pub struct Gathered {
    tensor: Tensor,
    /// Outer dimensions as (size, stride in bytes), the innermost last.
    outer: Vec<(u64, u64)>,
    /// Bytes of the longest run that is contiguous both in the storage and in C order.
    run: u64,
}

impl Gathered {
    pub(crate) fn new(tensor: Tensor) -> Self {
        let element = tensor.dtype().size();
        let mut run = element;
        let mut outer: Vec<(u64, u64)> = tensor
            .shape()
            .iter()
            .zip(tensor.stride())
            .filter(|(size, _)| **size != 1)
            .map(|(size, stride)| (*size, stride.saturating_mul(element)))
            .collect();
        while let Some((size, stride)) = outer.last().copied() {
            if stride != run {
                break;
            }
            run = run.saturating_mul(size);
            outer.pop();
        }
        Self { tensor, outer, run }
    }

    /// Reads at most [`WINDOW`] bytes in C order from byte `start` on, little-endian. `start` is a multiple of the
    /// window.
    ///
    /// # Errors
    /// When the storage cannot be read.
    pub fn window(&self, start: u64) -> Result<Window, byte_source::Error> {
        let left = self.len().saturating_sub(start);
        let len = usize::try_from(left).unwrap_or(WINDOW).min(WINDOW);
        Window::filled(len, |bytes| self.read(start, bytes, &mut self.blocks()))
    }

    /// Creates the block cache that [`read`](Self::read) keeps from one call to the next.
    pub(crate) fn blocks(&self) -> BlockCache<'_> {
        BlockCache::new(self.tensor.storage(), self.run, &self.outer)
    }

    /// Copies the bytes from `start` on (counted in C order) into `out`, little-endian. The range starts and ends at
    /// components.
    pub(crate) fn read(
        &self,
        start: u64,
        out: &mut [u8],
        blocks: &mut BlockCache<'_>,
    ) -> Result<(), byte_source::Error> {
        let (mut at, mut out) = (start, out);
        while !out.is_empty() {
            let (Some(mut number), Some(within)) = (at.checked_div(self.run), at.checked_rem(self.run))
            else {
                return Ok(());
            };
            let mut from = self.tensor.span().start.saturating_add(within);
            for (size, stride) in self.outer.iter().rev() {
                from = from.saturating_add(number.checked_rem(*size).unwrap_or(0).saturating_mul(*stride));
                number = number.checked_div(*size).unwrap_or(0);
            }
            let len = self.run.saturating_sub(within).min(out.len() as u64);
            let (now, rest) = out.split_at_mut(usize(len)?);
            blocks.read(usize(from)?, now)?;
            at = at.saturating_add(len);
            out = rest;
        }
        Ok(())
    }

    /// Sends runs that are shorter than a window, many per window.
    fn send_short_runs(&self, start: u64, sink: &mut dyn Sink) -> Result<(), byte_source::Error> {
        let mut blocks = self.blocks();
        let run = usize(self.run)?.max(1);
        let most = WINDOW.checked_div(run).unwrap_or(1).saturating_mul(run);
        let mut index = vec![0_u64; self.outer.len()];
        let (mut next, mut left) = (Some(start), self.len());
        while left > 0 {
            let len = usize::try_from(left).unwrap_or(most).min(most);
            let window = Window::filled(len, |bytes| {
                for out in bytes.chunks_mut(run) {
                    // There are as many indices as runs.
                    let at = next.ok_or(io::ErrorKind::UnexpectedEof)?;
                    blocks.read(usize(at)?, out)?;
                    next = advance_index(&mut index, &self.outer, at);
                }
                Ok(())
            })?;
            left = left.saturating_sub(len as u64);
            sink.write(window)?;
        }
        Ok(())
    }
}

/// Advances `index` in C order. Returns the byte offset of the new index, or `None` after the last.
fn advance_index(index: &mut [u64], outer: &[(u64, u64)], mut at: u64) -> Option<u64> {
    for (i, (size, stride)) in index.iter_mut().zip(outer).rev() {
        *i = i.saturating_add(1);
        at = at.saturating_add(*stride);
        if *i < *size {
            return Some(at);
        }
        at = at.saturating_sub(size.saturating_mul(*stride));
        *i = 0;
    }
    None
}

fn usize(n: u64) -> Result<usize, byte_source::Error> {
    usize::try_from(n).map_err(|_| io::ErrorKind::InvalidInput.into())
}

impl Blob for Gathered {
    fn len(&self) -> u64 {
        self.tensor.nbytes()
    }

    fn write_to(&self, sink: &mut dyn Sink) -> Result<(), byte_source::Error> {
        if self.tensor.numel() == 0 {
            return Ok(());
        }
        let start = self.tensor.span().start;
        if self.run <= (WINDOW as u64) / 2 && !self.outer.is_empty() {
            return self.send_short_runs(start, sink);
        }
        let mut index = vec![0_u64; self.outer.len()];
        let mut at = Some(start);
        while let Some(from) = at {
            self.tensor.storage().send_range(from..from.saturating_add(self.run), sink)?;
            at = advance_index(&mut index, &self.outer, from);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ByteOrder, Dtype, Storage};

    fn collect(shape: &[u64], stride: &[u64], offset: u64, storage: Storage) -> Vec<u8> {
        let tensor = Tensor::new(Dtype::Int16, shape.to_vec(), stride.to_vec(), offset, storage)
            .expect("the view is inside its storage");
        let mut out: Vec<u8> = Vec::new();
        tensor.gathered().write_to(&mut out).expect("memory can be read");
        assert_eq!(out.len() as u64, tensor.nbytes());
        out
    }

    fn i16s(bytes: &[u8]) -> Vec<i16> {
        bytes.chunks(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect()
    }

    fn counting() -> Storage {
        Storage::owned((0..12_i16).flat_map(i16::to_le_bytes).collect())
    }

    #[test]
    fn views_come_out_in_c_order() {
        assert_eq!(i16s(&collect(&[3, 4], &[4, 1], 0, counting())), (0..12).collect::<Vec<_>>());
        assert_eq!(i16s(&collect(&[4, 3], &[1, 4], 0, counting())), [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]);
        assert_eq!(i16s(&collect(&[2, 2], &[4, 2], 1, counting())), [1, 3, 5, 7]);
        assert_eq!(i16s(&collect(&[2, 3], &[0, 1], 2, counting())), [2, 3, 4, 2, 3, 4]);
        assert_eq!(i16s(&collect(&[], &[], 11, counting())), [11]);
        assert!(collect(&[0, 3], &[3, 1], 0, counting()).is_empty());
    }

    /// Compares the elements of views of many sizes and strides with directly indexed ones.
    #[test]
    fn any_view_is_read_element_by_element() {
        let bytes: Vec<u8> = (0..400_000_u32).flat_map(|n| n.wrapping_mul(40_503).to_le_bytes()).collect();
        let numbers = i16s(&bytes);
        let storage = Storage::owned(bytes);
        let mut seed = 1_u64;
        let mut one_of = |choices: &[u64]| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            choices[usize::try_from(seed >> 33).expect("31 bits") % choices.len()]
        };
        let mut compared = 0;
        for _ in 0..100 {
            let rank = one_of(&[0, 1, 2, 3, 4]);
            let shape: Vec<u64> = (0..rank).map(|_| one_of(&[1, 2, 3, 40, 300])).collect();
            let stride: Vec<u64> = (0..rank).map(|_| one_of(&[0, 1, 2, 7, 300, 2048, 9000])).collect();
            let last: u64 = shape.iter().zip(&stride).map(|(size, stride)| (size - 1) * stride).sum();
            if shape.iter().product::<u64>() > 1_000_000 || last >= 790_000 {
                continue;
            }
            let found = i16s(&collect(&shape, &stride, 17, storage.clone()));
            let step = usize::try_from(one_of(&[1, 3, 7])).expect("it is small");
            for (number, found) in (0_u64..).zip(found).step_by(step) {
                let (mut rest, mut at) = (number, 17);
                for (size, stride) in shape.iter().zip(&stride).rev() {
                    at += rest % size * stride;
                    rest /= size;
                }
                let expected = numbers[usize::try_from(at).expect("it is inside")];
                assert_eq!(found, expected, "{shape:?} {stride:?} {number}");
            }
            compared += 1;
        }
        assert!(compared > 40, "{compared}");
    }

    #[test]
    fn big_endian_storages_come_out_little() {
        let bytes = (0..12_i16).flat_map(i16::to_be_bytes).collect();
        let storage = Storage::owned(bytes).with_byte_order(ByteOrder::Big, 2);
        assert_eq!(i16s(&collect(&[4, 3], &[1, 4], 0, storage)), [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]);
    }

    #[test]
    fn bounds_are_proven() {
        let view = |shape: &[u64], stride: &[u64], offset| {
            Tensor::new(Dtype::Int16, shape.to_vec(), stride.to_vec(), offset, counting())
                .map(|_| ())
                .map_err(|error| error.to_string())
        };
        assert_eq!(view(&[0], &[1], 500), Ok(()));
        assert_eq!(
            view(&[3, 4], &[4, 1], 1).expect_err("one too far"),
            "shape [3, 4] with stride [4, 1] at offset 1 needs 26 bytes of its storage, which has 24"
        );
        assert!(view(&[u64::MAX], &[0], 0).expect_err("too many").contains("larger than 2^63"));
        assert!(view(&[2], &[u64::MAX], 0).is_err());
        assert!(view(&[2, 2], &[1], 0).is_err());
    }
}
