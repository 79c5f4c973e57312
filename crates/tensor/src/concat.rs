//! The elements of several tensors as those of one, for checkpoints that are split over files.
//!
//! Facts: `torch.cat`. In C order a concatenation along a dimension is made of rows, one for each index
//! of the dimensions before it, and a row of one run of each part.

use std::collections::HashSet;
use std::io;
use std::ops::Range;

use mapped::{Crc32, Sink, WINDOW, Window};

use crate::blocks::Blocks;
use crate::{Error, Gathered, Storage, StorageId, Tensor, contiguous_strides};

/// See [`Storage::concat`].
#[derive(Debug)]
pub(crate) struct Concat {
    parts: Vec<Part>,
    /// Bytes of a row.
    row: u64,
    len: u64,
}

/// Copies the bytes of part number `.0` from byte `.1` on, counted in C order, into `.2`.
type ReadPart<'r> = dyn FnMut(usize, u64, &mut [u8]) -> io::Result<()> + 'r;

#[derive(Debug)]
struct Part {
    tensor: Tensor,
    gathered: Gathered,
    /// Bytes in a row.
    run: u64,
    /// Bytes of a row before this part's.
    start: u64,
}

impl Concat {
    /// The concatenation, and its shape.
    pub(crate) fn new(dim: usize, parts: &[Tensor]) -> Result<(Self, Vec<u64>), Error> {
        let Some(first) = parts.first() else {
            return Err(Error::Unlike { first: Vec::new(), part: Vec::new(), dim });
        };
        let (dtype, mut shape) = (first.dtype(), first.shape().to_vec());
        let unlike =
            |part: &Tensor| Error::Unlike { first: first.shape().to_vec(), part: part.shape().to_vec(), dim };
        let overflow = || Error::Overflow { shape: first.shape().to_vec(), stride: first.stride().to_vec() };
        let mut joined = 0_u64;
        for part in parts {
            let others = |shape: &[u64]| {
                shape.iter().enumerate().filter(|(i, _)| *i != dim).map(|(_, n)| *n).collect::<Vec<_>>()
            };
            let Some(size) = part.shape().get(dim) else { return Err(unlike(part)) };
            if part.shape().len() != shape.len() || others(part.shape()) != others(&shape) {
                return Err(unlike(part));
            }
            if part.dtype() != dtype {
                return Err(Error::Mixed { first: dtype, part: part.dtype() });
            }
            joined = joined.checked_add(*size).ok_or_else(overflow)?;
        }
        let inner = |shape: &[u64]| {
            let sizes =
                shape.iter().skip(dim).chain(std::iter::once(&0)).take(shape.len().saturating_sub(dim));
            sizes.fold(dtype.size(), |product, size| product.saturating_mul(*size))
        };
        let (mut placed, mut row) = (Vec::with_capacity(parts.len()), 0_u64);
        for tensor in parts {
            let run = inner(tensor.shape());
            let (tensor, gathered) = (tensor.clone(), tensor.gathered());
            placed.push(Part { tensor, gathered, run, start: row });
            row = row.checked_add(run).ok_or_else(overflow)?;
        }
        if let Some(size) = shape.get_mut(dim) {
            *size = joined;
        }
        let len = shape.iter().try_fold(dtype.size(), |product, size| product.checked_mul(*size));
        let len = len.filter(|len| i64::try_from(*len).is_ok()).ok_or_else(overflow)?;
        Ok((Self { parts: placed, row, len }, shape))
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Whether bytes of the storage with this id are read.
    pub(crate) fn reads(&self, id: StorageId) -> bool {
        self.parts.iter().any(|part| part.tensor.storage().reads(id))
    }

    /// Copies the bytes from `start` on into `out`, little-endian.
    pub(crate) fn read(&self, start: u64, out: &mut [u8]) -> io::Result<()> {
        self.assemble(start, out, &mut |number, at, out| {
            let part = self.parts.get(number).ok_or(io::ErrorKind::UnexpectedEof)?;
            part.gathered.read(at, out, &mut part.gathered.blocks())
        })
    }

    /// Fills `out` with the bytes from `start` on. `read` copies those of each part.
    fn assemble(&self, start: u64, out: &mut [u8], read: &mut ReadPart<'_>) -> io::Result<()> {
        if start.checked_add(out.len() as u64).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (mut at, mut out) = (start, out);
        while !out.is_empty() {
            let in_row = at.checked_rem(self.row).unwrap_or(0);
            // Parts without elements start where their neighbours do; the last to start has the byte.
            let number = self.parts.partition_point(|part| part.start <= in_row).saturating_sub(1);
            let part = self.parts.get(number).ok_or(io::ErrorKind::UnexpectedEof)?;
            let rest = part.start.saturating_add(part.run).saturating_sub(in_row);
            let len = usize::try_from(rest).unwrap_or(usize::MAX).min(out.len());
            let (now, later) = out.split_at_mut(len);
            read(number, self.within(part, at), now)?;
            at = at.saturating_add(len as u64);
            out = later;
        }
        Ok(())
    }

    /// The bytes of `part` that come before the byte `at` of the concatenation.
    fn within(&self, part: &Part, at: u64) -> u64 {
        let rows = at.checked_div(self.row).unwrap_or(0);
        let in_row = at.checked_rem(self.row).unwrap_or(0);
        rows.saturating_mul(part.run).saturating_add(in_row.saturating_sub(part.start).min(part.run))
    }

    /// The bytes of the storage of `part` that `range` of the concatenation reads; for a part that is not
    /// contiguous, everything that it views.
    fn span(&self, part: &Part, range: &Range<u64>) -> Range<usize> {
        let span = part.tensor.span();
        let (start, end) = (self.within(part, range.start), self.within(part, range.end));
        if start == end {
            // A view without elements may start past the end of its storage.
            return 0..0;
        }
        let bytes = if part.tensor.is_contiguous() {
            span.start.saturating_add(start)..span.start.saturating_add(end)
        } else {
            span
        };
        let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        at(bytes.start)..at(bytes.end)
    }

    /// Sends the bytes of `range`, little-endian, in windows.
    pub(crate) fn send(&self, range: Range<u64>, sink: &mut dyn Sink) -> io::Result<()> {
        if range.end > self.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let whole = range == (0..self.len);
        if whole && self.row == self.len && self.parts.iter().all(|part| part.tensor.is_contiguous()) {
            let mut parts = self.parts.iter();
            parts.try_for_each(|part| part.tensor.storage().send(self.span(part, &range), sink))?;
            return self.verify(Part::is_whole);
        }
        let mut readers: Vec<Reader<'_>> = self.parts.iter().map(|part| Reader::new(part, whole)).collect();
        let mut start = range.start;
        while start < range.end {
            // A multiple of every component size, so that no number is cut.
            let window = start..start.saturating_add(WINDOW as u64).min(range.end);
            for (part, reader) in self.parts.iter().zip(&mut readers) {
                reader.advance(self.within(part, window.start)..self.within(part, window.end))?;
            }
            let len = usize::try_from(window.end.saturating_sub(window.start)).unwrap_or(WINDOW);
            sink.write(Window::filled(len, |bytes| {
                self.assemble(window.start, bytes, &mut |number, at, out| match readers.get_mut(number) {
                    Some(reader) => reader.read(at, out),
                    None => Err(io::ErrorKind::UnexpectedEof.into()),
                })
            })?)?;
            start = window.end;
        }
        for reader in readers {
            if let Some(sum) = reader.sum {
                reader.part.tensor.storage().compare(sum.sum())?;
            }
        }
        if whole { self.verify(|part| part.is_whole() && part.tensor.storage().is_summed()) } else { Ok(()) }
    }

    /// Reads the storages that were sent only in part once more, for their checksums.
    fn verify(&self, is_done: impl Fn(&Part) -> bool) -> io::Result<()> {
        let mut verified = HashSet::new();
        let mut rest = self.parts.iter().filter(|part| !is_done(part)).map(|part| part.tensor.storage());
        rest.try_for_each(|storage| if verified.insert(storage.id()) { storage.verify() } else { Ok(()) })
    }
}

impl Part {
    /// Whether the part is all bytes of its storage, in their order.
    fn is_whole(&self) -> bool {
        self.tensor.is_contiguous() && self.tensor.span() == (0..self.tensor.storage().len())
    }
}

/// Reads a part from its start to its end.
struct Reader<'p> {
    part: &'p Part,
    /// Where the bytes come from if the part is not contiguous.
    blocks: Blocks<'p>,
    /// Otherwise the bytes of the part that are needed now, read at once, and which is the first.
    bytes: Vec<u8>,
    start: u64,
    /// The bytes pass in order even if parts alternate, so they can be summed.
    sum: Option<Crc32>,
}

impl<'p> Reader<'p> {
    /// If all of the part will be read, `whole`, its checksum is computed.
    fn new(part: &'p Part, whole: bool) -> Self {
        let is_summed = whole && part.is_whole() && part.tensor.storage().is_summed();
        let sum = is_summed.then(Crc32::default);
        Self { part, blocks: part.gathered.blocks(), bytes: Vec::new(), start: 0, sum }
    }

    /// Makes the bytes of `range` of the part ready.
    fn advance(&mut self, range: Range<u64>) -> io::Result<()> {
        if range.is_empty() {
            // Parts that follow each other are not all kept in memory.
            self.bytes = Vec::new();
        } else if self.part.tensor.is_contiguous() {
            let at = |n: u64| usize::try_from(n).map_err(|_| io::ErrorKind::InvalidInput);
            let from = self.part.tensor.span().start.saturating_add(range.start);
            self.bytes.resize(at(range.end.saturating_sub(range.start))?, 0);
            self.start = range.start;
            let storage = self.part.tensor.storage();
            storage.read_summed(at(from)?, &mut self.bytes, self.sum.as_mut())?;
        }
        Ok(())
    }

    /// Copies the bytes from `start` on into `out`.
    fn read(&mut self, start: u64, out: &mut [u8]) -> io::Result<()> {
        if !self.part.tensor.is_contiguous() {
            return self.part.gathered.read(start, out, &mut self.blocks);
        }
        let from = usize::try_from(start.saturating_sub(self.start)).unwrap_or(usize::MAX);
        let bytes = self.bytes.get(from..from.saturating_add(out.len()));
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl Tensor {
    /// The elements of `parts` one after the other along dimension `dim`; see [`Storage::concat`].
    ///
    /// # Errors
    /// As [`Storage::concat`].
    pub fn concat(dim: usize, parts: &[Tensor]) -> Result<Self, Error> {
        let dtype = parts.first().map_or(crate::Dtype::UInt8, Tensor::dtype);
        let (storage, shape) = Storage::concat(dim, parts)?;
        let stride = contiguous_strides(&shape);
        Self::new(dtype, shape, stride, 0, storage)
    }

    /// Whether `other` has the same shape, dtype and elements, compared bit by bit in windows. `check` is called before
    /// each of them.
    ///
    /// # Errors
    /// When one of them cannot be read, and those of `check`.
    pub fn has_elements_of(&self, other: &Tensor, check: &dyn Fn() -> io::Result<()>) -> io::Result<bool> {
        if self.shape() != other.shape() || self.dtype() != other.dtype() {
            return Ok(false);
        }
        let (ours, theirs) = (self.gathered(), other.gathered());
        let (mut our_blocks, mut their_blocks) = (ours.blocks(), theirs.blocks());
        let mut start = 0;
        while start < self.nbytes() {
            check()?;
            let left = self.nbytes().saturating_sub(start);
            let len = usize::try_from(left).unwrap_or(WINDOW).min(WINDOW);
            let our = Window::filled(len, |bytes| ours.read(start, bytes, &mut our_blocks))?;
            let their = Window::filled(len, |bytes| theirs.read(start, bytes, &mut their_blocks))?;
            if *our != *their {
                return Ok(false);
            }
            start = start.saturating_add(len as u64);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use mapped::Blob;

    use super::*;
    use crate::{ByteOrder, Dtype};

    fn part(shape: [u64; 2], stride: [u64; 2], from: i16) -> Tensor {
        let numel = usize::try_from(shape.iter().product::<u64>()).expect("small");
        let storage = Storage::owned((from..).take(numel).flat_map(i16::to_le_bytes).collect());
        Tensor::new(Dtype::Int16, shape.to_vec(), stride.to_vec(), 0, storage).expect("inside its storage")
    }

    fn values(tensor: &Tensor) -> Vec<i16> {
        let mut out: Vec<u8> = Vec::new();
        tensor.gathered().write_to(&mut out).expect("memory can be read");
        out.chunks(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect()
    }

    #[test]
    fn parts_come_out_as_torch_cat_lays_them() {
        let rows = Tensor::concat(0, &[part([1, 3], [3, 1], 0), part([2, 3], [3, 1], 3)]).expect("alike");
        assert_eq!(rows.shape(), [3, 3]);
        assert_eq!(values(&rows), (0..9).collect::<Vec<_>>());
        let columns =
            Tensor::concat(1, &[part([2, 1], [1, 1], 0), part([2, 0], [1, 1], 0), part([2, 2], [2, 1], 10)]);
        let columns = columns.expect("alike");
        assert_eq!(columns.shape(), [2, 3]);
        assert_eq!(values(&columns), [0, 10, 11, 1, 12, 13]);
    }

    #[test]
    fn a_part_without_elements_may_start_past_the_end_of_its_storage() {
        let storage = Storage::owned(vec![0; 4]);
        let empty = Tensor::new(Dtype::Int16, vec![0, 3], vec![3, 1], 7, storage).expect("it reads nothing");
        for parts in [[part([1, 3], [3, 1], 0), empty.clone()], [empty.clone(), part([1, 3], [1, 1], 0)]] {
            let rows = Tensor::concat(0, &parts).expect("alike");
            assert_eq!(values(&rows), [0, 1, 2]);
        }
        let columns = Tensor::concat(1, &[empty.clone(), part([0, 2], [2, 1], 0)]).expect("alike");
        assert_eq!((columns.shape(), values(&columns)), ([0, 5].as_slice(), Vec::new()));
    }

    #[test]
    fn transposed_and_big_endian_parts_come_out_too() {
        let both = |dim| {
            values(&Tensor::concat(dim, &[part([2, 2], [1, 2], 0), part([2, 2], [2, 1], 10)]).expect("alike"))
        };
        assert_eq!(both(0), [0, 2, 1, 3, 10, 11, 12, 13]);
        assert_eq!(both(1), [0, 2, 10, 11, 1, 3, 12, 13]);
        let big = Storage::owned((0..4_i16).flat_map(i16::to_be_bytes).collect());
        let big = big.with_byte_order(ByteOrder::Big, 2);
        let big = Tensor::new(Dtype::Int16, vec![2, 2], vec![2, 1], 0, big).expect("inside");
        let joined = Tensor::concat(1, &[big, part([2, 1], [1, 1], 10)]).expect("alike");
        assert_eq!(values(&joined), [0, 1, 10, 2, 3, 11]);
        // A view of what was joined.
        let storage = joined.storage().clone();
        let view = Tensor::new(Dtype::Int16, vec![3], vec![2], 1, storage).expect("inside");
        assert_eq!(values(&view), [1, 2, 11]);
    }

    #[test]
    fn many_windows_are_one_tensor() {
        let part = |value: u8| {
            let storage = Storage::owned(vec![value; 3 << 20]);
            Tensor::new(Dtype::UInt8, vec![3, 1 << 20], vec![1 << 20, 1], 0, storage).expect("inside")
        };
        let joined = Tensor::concat(1, &[part(1), part(2)]).expect("alike");
        let mut out: Vec<u8> = Vec::new();
        joined.gathered().write_to(&mut out).expect("memory can be read");
        let halves: Vec<u8> = out.chunks(1 << 20).map(|half| half[0]).collect();
        assert_eq!(halves, [1, 2, 1, 2, 1, 2]);
        assert!(out.chunks(1 << 20).all(|half| half.iter().all(|byte| *byte == half[0])));
    }

    #[test]
    fn elements_are_compared_bit_by_bit() {
        let same = part([2, 2], [2, 1], 0).has_elements_of(&part([2, 2], [2, 1], 0), &|| Ok(()));
        assert!(same.expect("memory can be read"));
        let transposed = part([2, 2], [2, 1], 0).has_elements_of(&part([2, 2], [1, 2], 0), &|| Ok(()));
        assert!(!transposed.expect("memory can be read"));
    }

    #[test]
    fn unlike_parts_are_rejected() {
        let error =
            |dim, parts: &[Tensor]| Tensor::concat(dim, parts).map(|_| ()).expect_err("unlike").to_string();
        assert_eq!(
            error(0, &[part([1, 3], [3, 1], 0), part([1, 2], [2, 1], 0)]),
            "shape [1, 2] cannot follow shape [1, 3] along dimension 0"
        );
        assert!(error(2, &[part([1, 3], [3, 1], 0)]).contains("along dimension 2"));
        assert!(Tensor::concat(0, &[]).is_err());
    }
}
