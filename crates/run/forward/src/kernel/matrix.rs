//! Weight matrices, mapped from the file or copied to memory.

use std::ops::Range;

use byte_source::Blob;
use tensor::{Dtype, Storage, Tensor};

use crate::{Problem, Result};

/// Encoding of the numbers of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Dtype(Dtype),
    /// Blocks of `Q8_0` along each row.
    Q8_0,
}

impl Encoding {
    /// Returns the bytes of this many numbers of a line, which are whole blocks.
    pub(super) fn bytes_of(self, numbers: usize) -> usize {
        match self {
            Self::Dtype(dtype) => numbers * usize::try_from(dtype.size()).unwrap_or(1),
            Self::Q8_0 => numbers / 32 * 34,
        }
    }
}

/// Weight matrix [rows, cols], little-endian, at any alignment.
///
/// The bytes stay in the file if it has them in row-major or column-major order. Matrices in any other order are copied
/// once.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    rows: usize,
    cols: usize,
    /// True if the matrix is stored in column-major order, so that a line of the file is a column.
    is_column_major: bool,
    line_bytes: usize,
    encoding: Encoding,
    bytes: MatrixBytes,
}

#[derive(Clone, Debug)]
enum MatrixBytes {
    /// Range of a mapped storage, in bytes. It is kept because finding it takes longer than reading a row.
    Mapped(Storage, Range<usize>),
    Copied(std::sync::Arc<[u8]>),
}

impl Matrix {
    /// Creates the matrix of a tensor with two dimensions.
    ///
    /// # Errors
    /// When the tensor does not have two dimensions, products are not defined for its dtype, or it cannot be read.
    pub(crate) fn new(tensor: &Tensor) -> Result<Self> {
        let shape = || tensor.shape().to_vec();
        let &[rows, cols] = tensor.shape() else { return Err(Problem::NotMatrix { shape: shape() }.into()) };
        let dtype = tensor.dtype();
        if !matches!(dtype, Dtype::Float64 | Dtype::Float32 | Dtype::BFloat16 | Dtype::Float16) {
            return Err(Problem::Dtype { found: dtype }.into());
        }
        let size = |n: u64| usize::try_from(n).map_err(|_| Problem::TooLarge { shape: shape() });
        let blocks = tensor.q8_0_blocks();
        let encoding = if blocks.is_some() { Encoding::Q8_0 } else { Encoding::Dtype(dtype) };
        let stored = blocks.as_ref().unwrap_or(tensor);
        let (rows, cols, nbytes) = (size(rows)?, size(cols)?, size(stored.nbytes())?);
        let is_mapped = stored.mapped_bytes().is_some_and(|bytes| bytes.len() == nbytes);
        let bytes = if is_mapped {
            let span = stored.span();
            MatrixBytes::Mapped(stored.storage().clone(), size(span.start)?..size(span.end)?)
        } else {
            let mut copy = Vec::new();
            stored.gathered().write_to(&mut copy)?;
            if copy.len() != nbytes {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            MatrixBytes::Copied(copy.into())
        };
        let line_bytes = nbytes.checked_div(rows).unwrap_or(0);
        Ok(Self { rows, cols, is_column_major: false, line_bytes, encoding, bytes })
    }

    /// Creates the matrix of a tensor that its file has in column-major order, which only products can read in place;
    /// `None` for other tensors.
    pub(crate) fn column_major(tensor: &Tensor) -> Option<Self> {
        let &[_, _] = tensor.shape() else { return None };
        let turned = tensor.transpose(0, 1)?;
        if tensor.is_contiguous() || turned.mapped_bytes().is_none() {
            return None;
        }
        let stored = Self::new(&turned).ok()?;
        Some(Self { rows: stored.cols, cols: stored.rows, is_column_major: true, ..stored })
    }

    /// Returns the number of rows, which is the number of outputs of the product.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns, which is the number of inputs of the product.
    pub(crate) fn cols(&self) -> usize {
        self.cols
    }

    pub(crate) fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Returns true if the matrix is stored in column-major order, so that a line is a column and not a row.
    pub(super) fn is_column_major(&self) -> bool {
        self.is_column_major
    }

    pub(super) fn line_bytes(&self) -> usize {
        self.line_bytes
    }

    /// Returns the bytes of line `number`.
    ///
    /// # Panics
    /// When there is no such line.
    pub(super) fn line(&self, number: usize) -> &[u8] {
        let (line, _) = self.lines_from(number).split_at(self.line_bytes);
        line
    }

    /// Returns the bytes of line `number` and of all lines after it.
    ///
    /// # Panics
    /// When there is no such line.
    pub(super) fn lines_from(&self, number: usize) -> &[u8] {
        assert!(number < if self.is_column_major { self.cols } else { self.rows }, "a line of the matrix");
        let (_, lines) = self.bytes().split_at(number * self.line_bytes);
        lines
    }

    /// Returns the elements line by line, little-endian: rows × cols × the dtype's size in bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            MatrixBytes::Mapped(storage, range) => {
                storage.mapped_bytes().and_then(|bytes| bytes.get(range.clone())).unwrap_or_default()
            }
            MatrixBytes::Copied(bytes) => bytes,
        }
    }
}
