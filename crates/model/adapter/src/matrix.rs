//! Factors of an adapter: two-dimensional views whose numbers are read when they are needed.

use byte_source::Blob;
use tensor::{Dtype, Storage, Tensor};

use crate::Result;
use crate::adapter::AdapterTensor;
use crate::used_bytes::TensorPart;

/// Two-dimensional view of floating-point numbers.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    tensor: Tensor,
    rows: u64,
    columns: u64,
    /// Position of the adapter's tensor, and the offset of its first element in the storage; `None` for a constant.
    source: Option<(usize, u64)>,
}

impl Matrix {
    /// Creates the matrix of `rows × columns` numbers with these strides, from element `offset` of the tensor on.
    ///
    /// # Errors
    /// When the numbers are not floating-point numbers, or the view is not inside the tensor.
    pub(crate) fn new(
        source: AdapterTensor<'_>,
        (rows, columns): (u64, u64),
        (row_stride, column_stride): (u64, u64),
        offset: u64,
    ) -> Result<Self> {
        let AdapterTensor { position, tensor, .. } = source;
        let dtype = tensor.dtype();
        if !matches!(dtype, Dtype::Float64 | Dtype::Float32 | Dtype::Float16 | Dtype::BFloat16) {
            let expected = "float64, float32, float16 or bfloat16";
            return Err(source.unusable(format!("its dtype is {dtype}, expected {expected}")));
        }
        let start = tensor.storage_offset();
        let offset = start.checked_add(offset).ok_or_else(|| source.unusable("its offset is too large"))?;
        let (shape, stride) = (vec![rows, columns], vec![row_stride, column_stride]);
        let view = Tensor::new(tensor.dtype(), shape, stride, offset, tensor.storage().clone());
        let view = view.map_err(|reason| source.unusable(reason.to_string()))?;
        Ok(Self { tensor: view, rows, columns, source: Some((position, start)) })
    }

    /// Creates the constant matrix of one number, 1.
    ///
    /// # Errors
    /// Never in practice: the number is one element of its storage.
    pub(crate) fn one() -> Result<Self, tensor::Error> {
        let number = Storage::owned(1.0_f32.to_le_bytes().to_vec());
        let tensor = Tensor::new(Dtype::Float32, vec![1, 1], vec![1, 1], 0, number)?;
        Ok(Self { tensor, rows: 1, columns: 1, source: None })
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    pub(crate) fn columns(&self) -> u64 {
        self.columns
    }

    /// Returns the position of the adapter's tensor whose numbers these are, and which of them.
    pub(crate) fn source_part(&self) -> Option<(usize, TensorPart)> {
        let (position, start) = self.source?;
        let &[row_stride, column_stride] = self.tensor.stride() else { return None };
        let offset = self.tensor.storage_offset().checked_sub(start)?;
        Some((position, TensorPart::new(offset, [(self.rows, row_stride), (self.columns, column_stride)])))
    }

    pub(crate) fn transposed(&self) -> Option<Self> {
        let &[row_stride, column_stride] = self.tensor.stride() else { return None };
        let (offset, storage) = (self.tensor.storage_offset(), self.tensor.storage().clone());
        let (shape, stride) = (vec![self.columns, self.rows], vec![column_stride, row_stride]);
        let tensor = Tensor::new(self.tensor.dtype(), shape, stride, offset, storage).ok()?;
        Some(Self { tensor, rows: self.columns, columns: self.rows, source: self.source })
    }

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
        Some(Self { tensor, rows, columns: self.columns, source: self.source })
    }

    /// Returns true if float32 cannot represent the numbers exactly.
    pub(crate) fn is_double(&self) -> bool {
        self.tensor.dtype() == Dtype::Float64
    }

    /// Reads all numbers in row-major order. Those of float64 are rounded.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn read(&self) -> byte_source::Result<Vec<f32>> {
        let bytes = self.read_as(Dtype::Float32)?;
        Ok(bytes.as_chunks().0.iter().map(|number| f32::from_le_bytes(*number)).collect())
    }

    /// Reads all numbers in row-major order.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn read_doubles(&self) -> byte_source::Result<Vec<f64>> {
        let bytes = self.read_as(Dtype::Float64)?;
        Ok(bytes.as_chunks().0.iter().map(|number| f64::from_le_bytes(*number)).collect())
    }

    fn read_as(&self, dtype: Dtype) -> byte_source::Result<Vec<u8>> {
        let numbers = self.tensor.cast(dtype).ok_or(std::io::ErrorKind::InvalidData)?;
        let mut bytes: Vec<u8> = Vec::new();
        numbers.gathered().write_to(&mut bytes)?;
        Ok(bytes)
    }
}
