//! Tensors that are joined from tiles, such as the parts of a tensor in several files.
//!
//! Facts: `torch.cat` for tiles along one dimension, and the chunks of `torch.distributed.checkpoint` for any others.

use std::io;
use std::sync::Arc;

use byte_source::Window;
use foldhash::{HashMap, HashMapExt};

use crate::compute::{Compute, Inputs};
use crate::q8_0::block_bytes;
use crate::{Dtype, Error, Gathered, Storage, StorageId, Tensor, contiguous_strides};

/// Part of a tensor, placed at an index.
#[derive(Clone, Debug)]
pub struct Tile {
    pub tensor: Tensor,
    /// Index of its first element in the whole tensor, along each dimension.
    pub start: Vec<u64>,
}

impl Tensor {
    /// Joins `tiles`, which cover each element once, into a tensor of this dtype and shape.
    ///
    /// # Errors
    /// When a tile has another dtype or is not inside the shape, tiles overlap or leave elements out, or the size does not
    /// fit 63 bits.
    pub fn tiled(dtype: Dtype, shape: &[u64], tiles: Vec<Tile>) -> Result<Self, Error> {
        let tiles = TiledTensor::new(dtype, shape, tiles)?;
        let storage = Storage::computed(Arc::new(tiles));
        Self::new(dtype, shape.to_vec(), contiguous_strides(shape), 0, storage)
    }

    /// Concatenates `parts` along dimension `dim`, as `torch.cat` does.
    ///
    /// # Errors
    /// When there are no parts, they differ in dtype or in shape along another dimension, or the size does not fit 63 bits.
    pub fn concat(dim: usize, parts: &[Self]) -> Result<Self, Error> {
        let Some(first) = parts.first() else {
            return Err(Error::ShapeMismatch { first: Vec::new(), part: Vec::new(), dim });
        };
        let dtype = first.dtype();
        let (mut shape, mut start) = (first.shape().to_vec(), vec![0; first.shape().len()]);
        let overflow = || Error::Overflow { shape: first.shape().to_vec(), stride: first.stride().to_vec() };
        let mut tiles = Vec::with_capacity(parts.len());
        let mut joined = 0_u64;
        for part in parts {
            let is_alike = |(at, (ours, theirs)): (usize, (&u64, &u64))| at == dim || ours == theirs;
            let are_alike = || part.shape().iter().zip(first.shape()).enumerate().all(is_alike);
            let size = part.shape().get(dim).filter(|_| part.shape().len() == shape.len() && are_alike());
            let Some(size) = size else {
                return Err(Error::ShapeMismatch {
                    first: first.shape().to_vec(),
                    part: part.shape().to_vec(),
                    dim,
                });
            };
            if part.dtype() != dtype {
                return Err(Error::DtypeMismatch { first: dtype, part: part.dtype() });
            }
            tiles.push(Tile { tensor: part.clone(), start: start.clone() });
            joined = joined.checked_add(*size).ok_or_else(overflow)?;
            if let Some(start) = start.get_mut(dim) {
                *start = joined;
            }
        }
        if let Some(size) = shape.get_mut(dim) {
            *size = joined;
        }
        Self::tiled(dtype, &shape, tiles)
    }
}

/// Computation that implements [`Tensor::tiled`]. All numbers that are not bytes are elements.
#[derive(Debug)]
struct TiledTensor {
    shape: Vec<u64>,
    /// Size of an element in bytes.
    element: u64,
    len: u64,
    /// Tiles that have elements, sorted by the position of their first element.
    list: Vec<PlacedTile>,
    inputs: Vec<Storage>,
}

#[derive(Debug)]
struct PlacedTile {
    tensor: Tensor,
    gathered: Gathered,
    /// Number of the tile's storage in `inputs`.
    input: usize,
    start: Vec<u64>,
    /// Byte offsets in the whole tensor of the tile's first element, and of the end of its last (`end`).
    first: u64,
    end: u64,
    /// Bytes of the tile's longest run that is contiguous in the whole tensor, too.
    run: u64,
    /// Number of outer dimensions, which count runs; the inner dimensions lie within a run.
    outer: usize,
}

impl TiledTensor {
    fn new(dtype: Dtype, shape: &[u64], tiles: Vec<Tile>) -> Result<Self, Error> {
        let overflow = || Error::Overflow { shape: shape.to_vec(), stride: contiguous_strides(shape) };
        let numel = shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
        let numel = numel.ok_or_else(overflow)?;
        let len = numel.checked_mul(dtype.size()).filter(|len| i64::try_from(*len).is_ok());
        let len = len.ok_or_else(overflow)?;
        let mut all =
            Self { shape: shape.to_vec(), element: dtype.size(), len, list: Vec::new(), inputs: Vec::new() };
        let mut numbers: HashMap<StorageId, usize> = HashMap::with_capacity(tiles.len());
        let mut covered = 0_u64;
        for Tile { tensor, start } in tiles {
            if tensor.dtype() != dtype {
                return Err(Error::DtypeMismatch { first: dtype, part: tensor.dtype() });
            }
            let is_inside = |((size, start), whole): ((&u64, &u64), &u64)| {
                start.checked_add(*size).is_some_and(|end| end <= *whole)
            };
            let ranks = [tensor.shape().len(), start.len()];
            if ranks != [shape.len(); 2] || !tensor.shape().iter().zip(&start).zip(shape).all(is_inside) {
                return Err(Error::TileOutOfBounds {
                    tile: tensor.shape().to_vec(),
                    start,
                    shape: shape.to_vec(),
                });
            }
            if tensor.numel() == 0 {
                continue;
            }
            covered = covered.saturating_add(tensor.numel());
            let next = all.inputs.len();
            let input = *numbers.entry(tensor.storage().id()).or_insert(next);
            if input == next {
                all.inputs.push(tensor.storage().clone());
            }
            all.list.push(all.place_tile(tensor, start, input));
        }
        if covered != numel {
            return Err(Error::IncompleteTiles { shape: shape.to_vec(), found: covered, expected: numel });
        }
        all.reject_overlaps()?;
        all.list.sort_by_key(|tile| tile.first);
        Ok(all)
    }

    fn place_tile(&self, tensor: Tensor, start: Vec<u64>, input: usize) -> PlacedTile {
        let (mut run, mut outer) = (self.element, self.shape.len());
        // A dimension that the tile covers entirely continues the run.
        let mut sizes = tensor.shape().iter().zip(&self.shape).rev();
        let mut is_whole = true;
        while is_whole && let Some((size, whole)) = sizes.next() {
            run = run.saturating_mul(*size);
            outer = outer.saturating_sub(1);
            is_whole = size == whole;
        }
        let last = start
            .iter()
            .zip(tensor.shape())
            .map(|(start, size)| start.saturating_add(*size).saturating_sub(1));
        let (first, end) =
            (self.offset(start.iter().copied()), self.offset(last).saturating_add(self.element));
        let gathered = tensor.gathered();
        PlacedTile { tensor, gathered, input, start, first, end, run, outer }
    }

    /// Returns the byte offset of the element at `index` in the whole tensor.
    fn offset(&self, index: impl Iterator<Item = u64>) -> u64 {
        let number = index
            .zip(&self.shape)
            .fold(0_u64, |number, (at, size)| number.saturating_mul(*size).saturating_add(at));
        number.saturating_mul(self.element)
    }

    /// Checks that no tiles overlap, by comparing those that overlap along the dimension with the most distinct starts.
    fn reject_overlaps(&self) -> Result<(), Error> {
        /// Largest number of comparisons, more than any grid of tiles needs.
        const COMPARISONS_MAX: usize = 1 << 24;
        let starts = |dim: usize| {
            let mut starts: Vec<u64> =
                self.list.iter().filter_map(|tile| tile.start.get(dim).copied()).collect();
            starts.sort_unstable();
            starts.dedup();
            starts.len()
        };
        let Some(dim) = (0..self.shape.len()).max_by_key(|dim| starts(*dim)) else {
            // A scalar has exactly one tile.
            return Ok(());
        };
        let range = |tile: &PlacedTile, dim: usize| {
            let start = tile.start.get(dim).copied().unwrap_or(0);
            start..start.saturating_add(tile.tensor.shape().get(dim).copied().unwrap_or(0))
        };
        let mut sorted: Vec<&PlacedTile> = self.list.iter().collect();
        sorted.sort_by_key(|tile| range(tile, dim).start);
        let mut compared = 0_usize;
        for (number, tile) in (1..).zip(&sorted) {
            let end = range(tile, dim).end;
            for other in sorted.iter().skip(number).take_while(|other| range(other, dim).start < end) {
                compared = compared.saturating_add(1);
                let meets = |dim: usize| {
                    let (ours, theirs) = (range(tile, dim), range(other, dim));
                    ours.start < theirs.end && theirs.start < ours.end
                };
                if compared > COMPARISONS_MAX {
                    return Err(Error::TooManyTiles { tiles: sorted.len() });
                }
                if (0..self.shape.len()).all(meets) {
                    let (first, second) = (tile.start.clone(), other.start.clone());
                    return Err(Error::Overlap { first, second });
                }
            }
        }
        Ok(())
    }

    /// Returns the number of bytes of a tile, in its C order, that come before byte `at` of the whole tensor.
    fn offset_in_tile(&self, tile: &PlacedTile, at: u64) -> u64 {
        let mut rest = at.checked_div(self.element).unwrap_or(0);
        let mut inner_whole = self.len.checked_div(self.element).unwrap_or(0);
        let mut inner_tile = tile.tensor.numel();
        if rest >= inner_whole {
            return inner_tile.saturating_mul(self.element);
        }
        let mut before = 0_u64;
        for ((whole, size), start) in self.shape.iter().zip(tile.tensor.shape()).zip(&tile.start) {
            inner_whole = inner_whole.checked_div(*whole).unwrap_or(0);
            inner_tile = inner_tile.checked_div(*size).unwrap_or(0);
            let index = rest.checked_div(inner_whole).unwrap_or(0);
            rest = rest.checked_rem(inner_whole).unwrap_or(0);
            let Some(index) = index.checked_sub(*start) else { break };
            before = before.saturating_add(index.min(*size).saturating_mul(inner_tile));
            if index >= *size {
                break;
            }
        }
        before.saturating_mul(self.element)
    }

    /// Returns the offset in the whole tensor of byte `at` of a tile, and the number of bytes from there to the end of
    /// the run.
    fn offset_in_whole(&self, tile: &PlacedTile, at: u64) -> (u64, u64) {
        let mut number = at.checked_div(tile.run).unwrap_or(0);
        let in_run = at.checked_rem(tile.run).unwrap_or(0);
        let mut step = self.element;
        let mut place = 0_u64;
        let dims = tile.start.iter().zip(tile.tensor.shape()).zip(&self.shape).enumerate().rev();
        for (dim, ((start, size), whole)) in dims {
            let digit = if dim < tile.outer {
                let digit = number.checked_rem(*size).unwrap_or(0);
                number = number.checked_div(*size).unwrap_or(0);
                digit
            } else {
                0
            };
            place = place.saturating_add(start.saturating_add(digit).saturating_mul(step));
            step = step.saturating_mul(*whole);
        }
        (place.saturating_add(in_run), tile.run.saturating_sub(in_run))
    }

    /// Copies the bytes `from..to` of a tile to their places in `buffer`, which starts at byte `offset` of the whole
    /// tensor.
    fn copy(
        &self,
        tile: &PlacedTile,
        (from, to): (u64, u64),
        inputs: &mut Inputs<'_>,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<(), byte_source::Error> {
        let len = usize::try_from(to.saturating_sub(from)).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut read = |out: &mut [u8]| {
            if tile.tensor.is_contiguous() {
                return inputs.read(tile.input, out, tile.tensor.span().start.saturating_add(from));
            }
            tile.gathered.read(from, out, &mut tile.gathered.blocks())
        };
        let part = |place: u64, len: usize| {
            let start = usize::try_from(place.saturating_sub(offset)).unwrap_or(usize::MAX);
            start..start.saturating_add(len)
        };
        let outside = || io::ErrorKind::UnexpectedEof;
        let (place, run) = self.offset_in_whole(tile, from);
        if run >= len as u64 {
            return read(buffer.get_mut(part(place, len)).ok_or_else(outside)?);
        }
        let bytes = Window::filled(len, read)?;
        let mut at = from;
        let mut rest: &[u8] = &bytes;
        while !rest.is_empty() {
            let (place, run) = self.offset_in_whole(tile, at);
            let (now, later) = rest.split_at(usize::try_from(run).unwrap_or(usize::MAX).min(rest.len()));
            buffer.get_mut(part(place, now.len())).ok_or_else(outside)?.copy_from_slice(now);
            at = at.saturating_add(now.len() as u64);
            rest = later;
        }
        Ok(())
    }
}

impl Compute for TiledTensor {
    fn q8_0_blocks(&self) -> Option<Storage> {
        let in_bytes = |index: &[u64]| {
            let mut index = index.to_vec();
            let last = index.last_mut()?;
            *last = block_bytes(*last)?;
            Some(index)
        };
        let tile = |tile: &PlacedTile| {
            Some(Tile { tensor: tile.tensor.q8_0_blocks()?, start: in_bytes(&tile.start)? })
        };
        let tiles = self.list.iter().map(tile).collect::<Option<_>>()?;
        Some(Tensor::tiled(Dtype::UInt8, &in_bytes(&self.shape)?, tiles).ok()?.storage().clone())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn inputs(&self) -> &[Storage] {
        &self.inputs
    }

    fn granule(&self) -> u64 {
        self.element
    }

    fn read_at(
        &self,
        inputs: &mut Inputs<'_>,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<(), byte_source::Error> {
        let end = offset.saturating_add(buffer.len() as u64);
        let last = self.list.partition_point(|tile| tile.first < end);
        for tile in self.list.iter().take(last).filter(|tile| tile.end > offset) {
            let (from, to) = (self.offset_in_tile(tile, offset), self.offset_in_tile(tile, end));
            if from < to {
                self.copy(tile, (from, to), inputs, buffer, offset)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
