//! A matrix of weights, its bytes proven to be there.

use mapped::Blob;
use tensor::{Dtype, Tensor};

use crate::{Error, Result};

/// A matrix of weights [rows, cols] in C order, little-endian, at any alignment.
///
/// The bytes are those of the file where it has them in C order. Others are copied once.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    rows: usize,
    cols: usize,
    dtype: Dtype,
    bytes: Bytes,
}

/// Where the bytes are.
#[derive(Clone, Debug)]
enum Bytes {
    Mapped(Tensor),
    Copied(std::sync::Arc<[u8]>),
}

impl Matrix {
    /// The matrix that a tensor of two dimensions is.
    ///
    /// # Errors
    /// When the tensor does not have two dimensions, its dtype is not a floating-point number that products are defined for,
    /// or it cannot be read.
    pub(crate) fn new(tensor: &Tensor) -> Result<Self> {
        let shape = || tensor.shape().to_vec();
        let &[rows, cols] = tensor.shape() else { return Err(Error::NotMatrix { shape: shape() }) };
        let dtype = tensor.dtype();
        if !matches!(dtype, Dtype::Float64 | Dtype::Float32 | Dtype::BFloat16 | Dtype::Float16) {
            return Err(Error::Dtype { found: dtype });
        }
        let size = |n: u64| usize::try_from(n).map_err(|_| Error::TooLarge { shape: shape() });
        let (rows, cols, nbytes) = (size(rows)?, size(cols)?, size(tensor.nbytes())?);
        let bytes = if tensor.mapped_bytes().is_some_and(|bytes| bytes.len() == nbytes) {
            Bytes::Mapped(tensor.clone())
        } else {
            let mut copy = Vec::new();
            tensor.gathered().write_to(&mut copy).map_err(Error::Read)?;
            if copy.len() != nbytes {
                return Err(Error::Read(std::io::ErrorKind::UnexpectedEof.into()));
            }
            Bytes::Copied(copy.into())
        };
        Ok(Self { rows, cols, dtype, bytes })
    }

    /// The number of rows, which is the number of outputs of the product.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns, which is the number of inputs of the product.
    pub(crate) fn cols(&self) -> usize {
        self.cols
    }

    /// The dtype of the weights.
    pub(crate) fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The elements in C order, little-endian: rows × cols × the dtype's size in bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(tensor) => tensor.mapped_bytes().unwrap_or_default(),
            Bytes::Copied(bytes) => bytes,
        }
    }
}
