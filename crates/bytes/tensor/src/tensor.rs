//! Strided views of storages, with proven bounds.

use std::ops::Range;
use std::sync::Arc;

use byte_source::details;
use foldhash::HashSet;

use crate::{CastNumbers, Dtype, DtypeConversion, Gathered, Storage, ViewedRanges};

/// Error of creating, joining or reshaping a tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The shape and the stride differ in length.
    #[error("shape {shape:?} has {} dimensions, stride {stride:?} has {}", shape.len(), stride.len())]
    Rank {
        /// Shape of the tensor, in elements.
        shape: Vec<u64>,
        /// Stride of the tensor, in elements.
        stride: Vec<u64>,
    },
    /// The view reads past the end of its storage.
    #[error(
        "shape {shape:?} with stride {stride:?} at offset {offset} needs {needed} bytes of its storage, which has {available}"
    )]
    Bounds {
        /// Shape of the tensor, in elements.
        shape: Vec<u64>,
        /// Stride of the tensor, in elements.
        stride: Vec<u64>,
        /// Storage offset, in elements.
        offset: u64,
        /// Bytes up to the end of the view's last element.
        needed: u64,
        /// Bytes of the storage.
        available: u64,
    },
    /// Tensors to be joined differ in shape along another dimension.
    #[error("shape {part:?} cannot follow shape {first:?} along dimension {dim}")]
    ShapeMismatch {
        /// Shape of the first part, in elements.
        first: Vec<u64>,
        /// Shape of another part, in elements.
        part: Vec<u64>,
        /// Dimension along which the parts are joined, counted from 0.
        dim: usize,
    },
    /// Tensors to be joined differ in dtype.
    #[error("a part of dtype {part} cannot follow one of {first}")]
    DtypeMismatch {
        /// Dtype of the first part.
        first: Dtype,
        /// Dtype of another part.
        part: Dtype,
    },
    /// A tile is not inside the tensor.
    #[error("a tile of shape {tile:?} at {start:?} is not inside shape {shape:?}")]
    TileOutOfBounds {
        /// Shape of the tile, in elements.
        tile: Vec<u64>,
        /// Index of the tile's first element.
        start: Vec<u64>,
        /// Shape of the tensor, in elements.
        shape: Vec<u64>,
    },
    /// The tiles leave elements of the tensor out, or overlap.
    #[error("the tiles of shape {shape:?} have {found} elements, expected {expected}")]
    IncompleteTiles {
        /// Shape of the tensor, in elements.
        shape: Vec<u64>,
        /// Number of elements of all tiles.
        found: u64,
        /// Number of elements of the tensor.
        expected: u64,
    },
    /// Two tiles have elements in common.
    #[error("the tiles at {first:?} and {second:?} overlap")]
    Overlap {
        /// Index of the first element of one tile.
        first: Vec<u64>,
        /// Index of the first element of the other tile.
        second: Vec<u64>,
    },
    /// The tiles need more pairwise comparisons than any grid of tiles.
    #[error("{tiles} tiles are too many to be compared with each other")]
    TooManyTiles { tiles: usize },
    /// The elements are too few or too many for another shape.
    #[error("the elements of shape {shape:?} do not fill shape {into:?}")]
    ElementCount {
        /// Shape of the tensor, in elements.
        shape: Vec<u64>,
        /// Requested shape, in elements.
        into: Vec<u64>,
    },
    /// The size of the first dimension is not a multiple of groups × rows.
    #[error("the first dimension of shape {shape:?} is not a multiple of {groups} × {rows}")]
    IndivisibleGrid {
        /// Shape of the tensor, in elements.
        shape: Vec<u64>,
        groups: u64,
        /// Number of rows of a group.
        rows: u64,
    },
    /// The number of elements or the last byte's index does not fit 63 bits.
    #[error("shape {shape:?} with stride {stride:?} is larger than 2^63 bytes")]
    Overflow {
        /// Shape of the tensor, in elements.
        shape: Vec<u64>,
        /// Stride of the tensor, in elements.
        stride: Vec<u64>,
    },
}

details! {
    Error {
        Input: ShapeMismatch, DtypeMismatch, TileOutOfBounds, IncompleteTiles, Overlap, TooManyTiles, ElementCount, IndivisibleGrid;
        Damaged: Rank, Bounds, Overflow;
    }
}

/// Strided view of a storage, as in PyTorch.
///
/// Clones share their data and are cheap.
#[derive(Clone, Debug)]
pub struct Tensor {
    dtype: Dtype,
    /// Shape followed by stride, in elements.
    dims: Arc<[u64]>,
    offset: u64,
    storage: Storage,
}

/// Interning table of shapes and strides: a model of a million tensors has a dozen distinct ones.
#[derive(Clone, Debug, Default)]
pub struct DimsInterner(HashSet<Arc<[u64]>>);

impl DimsInterner {
    /// Largest number of entries; where all shapes differ, more entries would cost more than they save.
    const INTERNED_MAX: usize = 1 << 12;

    /// Returns the tensor, its shape and stride shared with an earlier tensor that has the same ones.
    #[must_use]
    pub fn intern(&mut self, mut tensor: Tensor) -> Tensor {
        match self.0.get(&tensor.dims) {
            Some(known) => tensor.dims = Arc::clone(known),
            None if self.0.len() < Self::INTERNED_MAX => {
                self.0.insert(Arc::clone(&tensor.dims));
            }
            None => {}
        }
        tensor
    }

    /// Creates a view like [`Tensor::new`], which allocates nothing if an earlier tensor had the same shape and stride. `dims` is the
    /// shape, of `rank` dimensions, followed by the stride.
    ///
    /// # Errors
    /// Those of [`Tensor::new`].
    pub fn view(
        &mut self,
        dtype: Dtype,
        (dims, rank): (&[u64], usize),
        offset: u64,
        storage: Storage,
    ) -> Result<Tensor, Error> {
        let (shape, stride) = dims.split_at_checked(rank).unwrap_or((dims, &[]));
        check_view(dtype, (shape, stride), offset, &storage)?;
        if let Some(known) = self.0.get(dims) {
            return Ok(Tensor { dtype, dims: Arc::clone(known), offset, storage });
        }
        let dims = Arc::from(dims);
        if self.0.len() < Self::INTERNED_MAX {
            self.0.insert(Arc::clone(&dims));
        }
        Ok(Tensor { dtype, dims, offset, storage })
    }
}

impl Tensor {
    /// Creates a view of `storage`; `shape`, `stride` and `offset` count elements.
    ///
    /// # Errors
    /// When the view is not inside its storage, or its size does not fit 63 bits (PyTorch counts in
    /// signed 64-bit numbers).
    pub fn new(
        dtype: Dtype,
        shape: Vec<u64>,
        stride: Vec<u64>,
        offset: u64,
        storage: Storage,
    ) -> Result<Self, Error> {
        check_view(dtype, (&shape, &stride), offset, &storage)?;
        Ok(Self { dtype, dims: shape.into_iter().chain(stride).collect(), offset, storage })
    }

    fn rank(&self) -> usize {
        self.dims.len() / 2
    }

    /// Returns the dtype of the elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Returns the number of elements along each dimension; empty for a scalar.
    pub fn shape(&self) -> &[u64] {
        self.dims.get(..self.rank()).unwrap_or_default()
    }

    /// Returns the stride: elements of the storage from one index to the next, along each dimension.
    pub fn stride(&self) -> &[u64] {
        self.dims.get(self.rank()..).unwrap_or_default()
    }

    /// Returns the number of storage elements before the first element.
    pub fn storage_offset(&self) -> u64 {
        self.offset
    }

    /// Returns the storage that the tensor views.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Returns the number of elements.
    pub fn numel(&self) -> u64 {
        // `new` proved that the product fits.
        self.shape().iter().fold(1, |product, size| product.saturating_mul(*size))
    }

    /// Returns the size in bytes of the elements in C order; repeated elements count as often as they appear.
    pub fn nbytes(&self) -> u64 {
        self.numel().saturating_mul(self.dtype.size())
    }

    /// Returns the elements in C order, little-endian.
    pub fn gathered(&self) -> Gathered {
        Gathered::new(self.clone())
    }

    /// Casts the tensor to another dtype; the numbers are converted whenever they are read. Returns `None` if there is
    /// no such [`DtypeConversion`]. Numbers out of the dtype's range become infinite or wrap around.
    #[must_use]
    pub fn cast(&self, dtype: Dtype) -> Option<Self> {
        if self.dtype == dtype {
            return Some(self.clone());
        }
        let conversion = DtypeConversion::new(self.dtype, dtype)?;
        let elements = self.storage.len().checked_div(self.dtype.size())?;
        let cast = CastNumbers::new(&self.storage, conversion, &(0..elements), ViewedRanges::default())?;
        let storage = Storage::computed(Arc::new(cast));
        self.with_storage(dtype, self.offset, storage).ok()
    }

    /// Returns the elements in C order, little-endian, without copying, reading or checking them. `None` if they lie in
    /// another order, or no file holds them as they are.
    ///
    /// The slice is the mapped file itself. If another program truncates the file, the system ends the process that
    /// touches a missing byte, while [`gathered`](Self::gathered) returns an error.
    pub fn mapped_bytes(&self) -> Option<&[u8]> {
        let (bytes, span) = (self.storage.mapped_bytes()?, self.span());
        let span = usize::try_from(span.start).ok()?..usize::try_from(span.end).ok()?;
        if self.is_contiguous() { bytes.get(span) } else { None }
    }

    /// Returns the view with size 1 along each dimension of stride 0, whose elements are all the same. Two tensors that
    /// repeat along the same dimensions are equal if these views are.
    #[must_use]
    pub fn without_repeats(&self) -> Self {
        let sizes = self.shape().iter().zip(self.stride());
        let sizes = sizes.map(|(size, stride)| if *stride == 0 { (*size).min(1) } else { *size });
        let dims = sizes.chain(self.stride().iter().copied()).collect();
        Self { dims, ..self.clone() }
    }

    /// Returns the shape followed by the stride, in elements.
    pub(crate) fn dims(&self) -> Arc<[u64]> {
        Arc::clone(&self.dims)
    }

    /// Creates a view of the same shape and stride over another storage, whose elements are of `dtype`; `offset` counts
    /// these elements.
    ///
    /// # Errors
    /// When the view is not inside the storage.
    pub fn with_storage(&self, dtype: Dtype, offset: u64, storage: Storage) -> Result<Self, Error> {
        Self::new(dtype, self.shape().to_vec(), self.stride().to_vec(), offset, storage)
    }

    /// Returns the view with two dimensions exchanged, as `torch.Tensor.transpose`; `None` if the tensor lacks one of
    /// them.
    #[must_use]
    pub fn transpose(&self, first: usize, second: usize) -> Option<Self> {
        let rank = self.rank();
        if first >= rank || second >= rank {
            return None;
        }
        let mut dims = self.dims.to_vec();
        dims.swap(first, second);
        dims.swap(rank.checked_add(first)?, rank.checked_add(second)?);
        Some(Self { dims: dims.into(), ..self.clone() })
    }

    /// Returns the view with one more dimension of size 1 before dimension `dim`, as `torch.Tensor.unsqueeze`; `None`
    /// if `dim` is greater than the number of dimensions.
    #[must_use]
    pub fn unsqueeze(&self, dim: usize) -> Option<Self> {
        let (mut shape, mut stride) = (self.shape().to_vec(), self.stride().to_vec());
        if dim > shape.len() {
            return None;
        }
        let step = shape.get(dim).zip(stride.get(dim));
        stride.insert(dim, step.map_or(1, |(size, stride)| size.saturating_mul(*stride)));
        shape.insert(dim, 1);
        shape.append(&mut stride);
        Some(Self { dims: shape.into(), ..self.clone() })
    }

    /// Returns the range of bytes of the storage from the view's first element to its last.
    pub fn span(&self) -> Range<u64> {
        let start = self.offset.saturating_mul(self.dtype.size());
        match end_byte(self.dtype, self.shape(), self.stride(), self.offset) {
            Some(end) if end > start => start..end,
            _ => start..start,
        }
    }

    /// Returns true if the elements are stored in C order without gaps.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1_u64;
        self.numel() == 0
            || self.shape().iter().zip(self.stride()).rev().all(|(size, stride)| {
                let fits = *size == 1 || *stride == expected;
                expected = expected.saturating_mul(*size);
                fits
            })
    }
}

fn check_view(
    dtype: Dtype,
    (shape, stride): (&[u64], &[u64]),
    offset: u64,
    storage: &Storage,
) -> Result<(), Error> {
    let dims = || (shape.to_vec(), stride.to_vec());
    if shape.len() != stride.len() {
        let (shape, stride) = dims();
        return Err(Error::Rank { shape, stride });
    }
    let Some(needed) = end_byte(dtype, shape, stride, offset) else {
        let (shape, stride) = dims();
        return Err(Error::Overflow { shape, stride });
    };
    let available = storage.len();
    if needed > available {
        let (shape, stride) = dims();
        return Err(Error::Bounds { shape, stride, offset, needed, available });
    }
    Ok(())
}

/// Returns the strides, in elements, of a tensor of this shape whose elements are stored in C order without gaps.
///
/// The last dimension has stride 1. A dimension of size 0 counts as one of size 1, as in PyTorch. A stride that does not
/// fit 64 bits is `u64::MAX`, which [`Tensor::new`] rejects.
///
/// ```
/// assert_eq!(tensor::contiguous_strides(&[2, 3, 4]), [12, 4, 1]);
/// assert_eq!(tensor::contiguous_strides(&[2, 0, 3]), [3, 3, 1]);
/// ```
pub fn contiguous_strides(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![0; shape.len()];
    let mut step = 1_u64;
    for (stride, size) in strides.iter_mut().zip(shape).rev() {
        *stride = step;
        step = step.saturating_mul((*size).max(1));
    }
    strides
}

/// Returns the number of bytes of the storage up to the end of the last element, 0 for a view without elements; `None`
/// if a number overflows 63 bits.
fn end_byte(dtype: Dtype, shape: &[u64], stride: &[u64], offset: u64) -> Option<u64> {
    let fits = |n: u64| i64::try_from(n).is_ok().then_some(n);
    let (mut numel, mut last) = (1_u64, offset);
    if shape.contains(&0) {
        return Some(0);
    }
    for (size, stride) in shape.iter().zip(stride) {
        numel = numel.checked_mul(*size)?;
        last = last.checked_add(size.checked_sub(1)?.checked_mul(*stride)?)?;
    }
    fits(numel.checked_mul(dtype.size())?)?;
    fits(last.checked_add(1)?.checked_mul(dtype.size())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interner_makes_the_same_views_and_errors_and_shares_their_dims() {
        let mut interner = DimsInterner::default();
        let storage = || Storage::owned(vec![0; 24]);
        for (shape, stride, offset) in [
            (vec![2, 3], vec![3, 1], 0),
            (vec![2, 3], vec![3, 1], 5),
            (vec![], vec![], 23),
            (vec![24], vec![1], 1),
            (vec![1], vec![], 0),
            (vec![], vec![1], 0),
            (vec![u64::MAX, 2], vec![1, 1], 0),
        ] {
            let dims = [shape.as_slice(), &stride].concat();
            let made = interner.view(Dtype::UInt8, (&dims, shape.len()), offset, storage());
            let expected = Tensor::new(Dtype::UInt8, shape, stride, offset, storage());
            match (made, expected) {
                (Ok(made), Ok(expected)) => {
                    assert_eq!((made.shape(), made.stride()), (expected.shape(), expected.stride()));
                    assert_eq!(made.storage_offset(), expected.storage_offset());
                }
                (made, expected) => assert_eq!(made.err(), expected.err()),
            }
        }
        let mut view =
            || interner.view(Dtype::UInt8, (&[4, 1], 1), 0, storage()).expect("4 of 24 bytes").dims();
        assert!(Arc::ptr_eq(&view(), &view()));
    }

    #[test]
    fn dimensions_are_exchanged_and_added_as_in_pytorch() {
        let bytes: Vec<u8> = (0..24).collect();
        let tensor =
            Tensor::new(Dtype::UInt8, vec![2, 3, 4], vec![12, 4, 1], 0, Storage::owned(bytes)).expect("24");
        let dims = |tensor: Option<Tensor>| tensor.map(|it| (it.shape().to_vec(), it.stride().to_vec()));
        assert_eq!(dims(tensor.transpose(0, 2)), Some((vec![4, 3, 2], vec![1, 4, 12])));
        assert_eq!(dims(tensor.transpose(1, 1)), Some((vec![2, 3, 4], vec![12, 4, 1])));
        assert!(tensor.transpose(0, 3).is_none() && tensor.transpose(3, 0).is_none());
        assert_eq!(dims(tensor.unsqueeze(0)), Some((vec![1, 2, 3, 4], vec![24, 12, 4, 1])));
        assert_eq!(dims(tensor.unsqueeze(2)), Some((vec![2, 3, 1, 4], vec![12, 4, 4, 1])));
        assert_eq!(dims(tensor.unsqueeze(3)), Some((vec![2, 3, 4, 1], vec![12, 4, 1, 1])));
        assert!(tensor.unsqueeze(4).is_none());
        let other = tensor.with_storage(Dtype::Int16, 1, Storage::owned(vec![0; 50])).expect("inside");
        assert_eq!((other.dtype(), other.storage_offset(), other.shape()), (Dtype::Int16, 1, tensor.shape()));
        tensor.with_storage(Dtype::Int16, 2, Storage::owned(vec![0; 50])).expect_err("past the end");
    }
}
