//! Factors of an adapter: two-dimensional views whose numbers are read when they are needed.

use byte_source::{Blob, ReadError};
use tensor::{Dtype, Tensor};

use crate::{Error, Result};

/// Two-dimensional view of floating-point numbers that float32 represents exactly.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    tensor: Tensor,
    rows: u64,
    columns: u64,
}

impl Matrix {
    /// Creates the matrix of `rows × columns` numbers with these strides, from element `offset` of `tensor`'s view on.
    ///
    /// # Errors
    /// When the numbers are not floating-point numbers of at most 32 bits, or the view is not inside the tensor.
    pub(crate) fn new(
        name: &str,
        tensor: &Tensor,
        (rows, columns): (u64, u64),
        (row_stride, column_stride): (u64, u64),
        offset: u64,
    ) -> Result<Self> {
        let invalid = |reason: String| Error::Factor { tensor: name.to_owned(), reason };
        if !matches!(tensor.dtype(), Dtype::Float32 | Dtype::Float16 | Dtype::BFloat16) {
            return Err(invalid(format!(
                "its dtype is {}, expected float32, float16 or bfloat16",
                tensor.dtype()
            )));
        }
        let offset = tensor.storage_offset().checked_add(offset);
        let offset = offset.ok_or_else(|| invalid("its offset is too large".to_owned()))?;
        let (shape, stride) = (vec![rows, columns], vec![row_stride, column_stride]);
        let view = Tensor::new(tensor.dtype(), shape, stride, offset, tensor.storage().clone());
        let view = view.map_err(|reason| invalid(reason.to_string()))?;
        Ok(Self { tensor: view, rows, columns })
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    pub(crate) fn columns(&self) -> u64 {
        self.columns
    }

    /// Returns the matrix of the rows in `range`.
    pub(crate) fn rows_in(&self, range: &std::ops::Range<u64>) -> Option<Self> {
        let rows = range.end.checked_sub(range.start)?;
        if range.end > self.rows {
            return None;
        }
        let stride = self.tensor.stride().to_vec();
        let offset = range.start.checked_mul(*stride.first()?)?.checked_add(self.tensor.storage_offset())?;
        let shape = vec![rows, self.columns];
        let storage = self.tensor.storage().clone();
        let tensor = Tensor::new(self.tensor.dtype(), shape, stride, offset, storage).ok()?;
        Some(Self { tensor, rows, columns: self.columns })
    }

    /// Reads all numbers in row-major order.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn read(&self) -> std::result::Result<Vec<f32>, ReadError> {
        let numbers = self.tensor.cast(Dtype::Float32).ok_or(std::io::ErrorKind::InvalidData)?;
        let mut bytes: Vec<u8> = Vec::new();
        numbers.gathered().write_to(&mut bytes)?;
        Ok(bytes.as_chunks().0.iter().map(|number| f32::from_le_bytes(*number)).collect())
    }
}
