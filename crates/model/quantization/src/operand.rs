//! Stored tensors that a kernel reads: codes, scales, zero points.

use std::io;
use std::ops::Range;

use tensor::{Dtype, Inputs, Storage, Tensor, Tile};

/// Tensor that a kernel reads, in C order.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    /// Number of its storage among the inputs of the computation.
    input: usize,
    /// Offset of its first element in the storage, in bytes.
    start: u64,
    dtype: Dtype,
    elements: u64,
}

/// Storages of the operands of a computation, each once.
#[derive(Debug, Default)]
pub(crate) struct Operands(Vec<Storage>);

impl Operands {
    /// Adds the storage of a tensor, and returns the tensor as an operand; `None` if its size overflows.
    pub(crate) fn add(&mut self, tensor: &Tensor) -> Option<Operand> {
        let joined;
        let tensor = if tensor.is_contiguous() {
            tensor
        } else {
            let whole = Tile { tensor: tensor.clone(), start: vec![0; tensor.shape().len()] };
            joined = Tensor::tiled(tensor.dtype(), tensor.shape(), vec![whole]).ok()?;
            &joined
        };
        let id = tensor.storage().id();
        let input = self.0.iter().position(|storage| storage.id() == id).unwrap_or_else(|| {
            self.0.push(tensor.storage().clone());
            self.0.len().saturating_sub(1)
        });
        let start = tensor.storage_offset().checked_mul(tensor.dtype().size())?;
        Some(Operand { input, start, dtype: tensor.dtype(), elements: tensor.numel() })
    }

    pub(crate) fn into_storages(self) -> Vec<Storage> {
        self.0
    }
}

/// Rectangle of bytes: rows at a constant distance.
#[derive(Clone, Debug)]
pub(crate) struct ByteRows {
    /// Offset of the first row, in bytes from the start of the operand.
    pub(crate) start: u64,
    pub(crate) rows: u64,
    /// Distance of the rows, in bytes.
    pub(crate) pitch: u64,
    pub(crate) len: u64,
}

impl Operand {
    pub(crate) fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Returns the bytes as a storage of their own, which is a part of one of the inputs.
    pub(crate) fn storage_among(&self, inputs: &[Storage]) -> Option<Storage> {
        let storage = inputs.get(self.input)?;
        let end = self.start.checked_add(self.elements.checked_mul(self.dtype.size())?)?;
        if self.start == 0 && end == storage.len() {
            Some(storage.clone())
        } else {
            storage.slice(self.start..end)
        }
    }

    /// Reads rows of bytes, joined.
    ///
    /// # Errors
    /// When they are not inside the tensor, or the storage cannot be read.
    pub(crate) fn read_rows(&self, inputs: &mut Inputs<'_>, part: &ByteRows) -> byte_source::Result<Vec<u8>> {
        let ByteRows { start, rows, pitch, len } = *part;
        let outside = || byte_source::Error::from(io::ErrorKind::UnexpectedEof);
        let total =
            rows.checked_mul(len).and_then(|total| usize::try_from(total).ok()).ok_or_else(outside)?;
        let last = rows.saturating_sub(1).checked_mul(pitch).and_then(|last| last.checked_add(start));
        let end = last.and_then(|last| last.checked_add(len)).ok_or_else(outside)?;
        if total > 0 && end > self.elements.saturating_mul(self.dtype.size()) {
            return Err(outside());
        }
        let start = self.start.checked_add(start).ok_or_else(outside)?;
        let mut bytes = vec![0; total];
        if len == pitch || rows <= 1 {
            inputs.read(self.input, &mut bytes, start)?;
            return Ok(bytes);
        }
        let mut at = start;
        for row in bytes.chunks_mut(usize::try_from(len).unwrap_or(1).max(1)) {
            inputs.read(self.input, row, at)?;
            at = at.saturating_add(pitch);
        }
        Ok(bytes)
    }

    fn read_elements(
        &self,
        inputs: &mut Inputs<'_>,
        elements: Range<u64>,
    ) -> Result<Vec<u8>, byte_source::Error> {
        let size = self.dtype.size();
        let part = ByteRows {
            start: elements.start.saturating_mul(size),
            rows: 1,
            pitch: 0,
            len: elements.end.saturating_sub(elements.start).saturating_mul(size),
        };
        self.read_rows(inputs, &part)
    }

    /// Reads elements as float32.
    ///
    /// # Errors
    /// When they are not inside the tensor, the dtype is not one of real numbers, or the storage cannot be read.
    pub(crate) fn read_floats(
        &self,
        inputs: &mut Inputs<'_>,
        elements: Range<u64>,
    ) -> byte_source::Result<Vec<f32>> {
        self.decode(&self.read_elements(inputs, elements)?)
    }

    /// Reads elements as float64.
    ///
    /// # Errors
    /// Those of [`read_floats`](Self::read_floats).
    pub(crate) fn read_doubles(
        &self,
        inputs: &mut Inputs<'_>,
        elements: Range<u64>,
    ) -> byte_source::Result<Vec<f64>> {
        let bytes = self.read_elements(inputs, elements)?;
        Ok(match self.dtype {
            Dtype::Float64 => bytes.as_chunks().0.iter().map(|it| f64::from_le_bytes(*it)).collect(),
            #[expect(clippy::cast_precision_loss, reason = "zero points are small")]
            Dtype::Int64 => bytes.as_chunks().0.iter().map(|it| i64::from_le_bytes(*it) as f64).collect(),
            _ => self.decode(&bytes)?.into_iter().map(f64::from).collect(),
        })
    }

    /// Reads elements of an integer dtype; negative ones become the largest number.
    ///
    /// # Errors
    /// Those of [`read_floats`](Self::read_floats).
    pub(crate) fn read_integers(
        &self,
        inputs: &mut Inputs<'_>,
        elements: Range<u64>,
    ) -> byte_source::Result<Vec<u32>> {
        let bytes = self.read_elements(inputs, elements)?;
        let size = usize::try_from(self.dtype.size()).unwrap_or(1).max(1);
        let integer = |bytes: &[u8]| {
            let is_negative = bytes.last().is_some_and(|byte| *byte >= 0x80);
            let number = bytes.iter().rev().fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
            if is_negative { u32::MAX } else { u32::try_from(number).unwrap_or(u32::MAX) }
        };
        Ok(bytes.chunks_exact(size).map(integer).collect())
    }

    /// Reads a rectangle of a matrix of `width` columns as float32, row by row.
    ///
    /// # Errors
    /// Those of [`read_floats`](Self::read_floats).
    pub(crate) fn read_grid(
        &self,
        inputs: &mut Inputs<'_>,
        width: u64,
        rows: Range<u64>,
        cols: Range<u64>,
    ) -> byte_source::Result<Vec<f32>> {
        let size = self.dtype.size();
        let first = rows.start.saturating_mul(width).saturating_add(cols.start);
        let part = ByteRows {
            start: first.saturating_mul(size),
            rows: rows.end.saturating_sub(rows.start),
            pitch: width.saturating_mul(size),
            len: cols.end.saturating_sub(cols.start).saturating_mul(size),
        };
        self.decode(&self.read_rows(inputs, &part)?)
    }

    fn decode(&self, bytes: &[u8]) -> byte_source::Result<Vec<f32>> {
        self.dtype.decode_f32(bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}
