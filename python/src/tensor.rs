//! Tensors of open files, read when they are needed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyMemoryError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use torch2carton::crates::byte_source::{hex, sha256};
use torch2carton::crates::pipeline::InspectOptions;
use torch2carton::{Blob, CompoundKind, Dtype, ErrorKind, ReadError, Sink, Tensors, Window};

use crate::index;
use crate::maps::Maps;
use crate::memory::{self, Buffer, CPU, DlDataType, Memory};
use crate::{errors, views, work};

/// A tensor of an open file: shape and dtype now, elements when they are asked for.
#[pyclass(frozen, module = "torch2carton._native")]
pub(crate) struct Tensor {
    maps: Arc<Maps>,
    path: Arc<Path>,
    name: String,
    inner: torch2carton::Tensor,
}

/// Returns a word for the kind of a compound tensor, such as `sparse_coo`.
pub(crate) fn kind_name(kind: &CompoundKind) -> String {
    match kind {
        CompoundKind::Quantized { .. } => "quantized".to_owned(),
        CompoundKind::Sparse { layout } => layout.clone(),
        CompoundKind::Nested => "nested".to_owned(),
        CompoundKind::Jagged => "jagged".to_owned(),
        CompoundKind::Subclass { class, .. } => class.clone(),
        CompoundKind::Meta { .. } => "meta".to_owned(),
    }
}

/// Sink that fills a slice.
pub(crate) struct SliceSink<'s>(pub(crate) &'s mut [u8]);

impl Sink for SliceSink<'_> {
    fn write(&mut self, window: Window) -> Result<(), ReadError> {
        let rest = std::mem::take(&mut self.0);
        let Some((now, later)) = rest.split_at_mut_checked(window.len()) else {
            return Err(std::io::ErrorKind::WriteZero.into());
        };
        now.copy_from_slice(&window);
        self.0 = later;
        Ok(())
    }
}

impl Tensor {
    pub(crate) fn new(maps: &Arc<Maps>, path: &Arc<Path>, name: &str, tensor: torch2carton::Tensor) -> Self {
        Self { maps: Arc::clone(maps), path: Arc::clone(path), name: name.to_owned(), inner: tensor }
    }

    /// Returns the elements in memory, their strides in elements, and whether they are a copy.
    fn elements(&self, py: Python<'_>, is_copied: bool) -> PyResult<(Memory, Vec<i64>, bool)> {
        let tensor = &self.inner;
        let mapped = if is_copied { None } else { self.maps.memory(tensor.storage(), tensor.span()) };
        if let Some(memory) = mapped {
            return Ok((memory, signed(tensor.stride()), false));
        }
        let mut bytes = Vec::new();
        let reserved =
            usize::try_from(tensor.nbytes()).ok().and_then(|len| bytes.try_reserve_exact(len).ok());
        if reserved.is_none() {
            let text = format!("tensor `{}` needs {} bytes of memory", self.name, tensor.nbytes());
            return Err(PyMemoryError::new_err(text));
        }
        let bytes = py.detach(move || tensor.gathered().write_to(&mut bytes).map(|()| bytes));
        let bytes = bytes.map_err(|error| self.exception(py, error))?;
        let strides = signed(&torch2carton::crates::tensor::contiguous_strides(tensor.shape()));
        Ok((Memory::owned(bytes), strides, true))
    }

    fn exception(&self, py: Python<'_>, error: ReadError) -> PyErr {
        errors::read_exception(py, error, &self.path, &self.name)
    }
}

/// Converts sizes, which fit 63 bits.
fn signed(sizes: &[u64]) -> Vec<i64> {
    sizes.iter().map(|size| i64::try_from(*size).unwrap_or(i64::MAX)).collect()
}

#[pymethods]
impl Tensor {
    /// The name in the file.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The path of the file or folder.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.to_path_buf()
    }

    /// PyTorch's name of the dtype, such as `bfloat16`.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.inner.dtype().name()
    }

    /// The number of elements along each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.inner.shape())
    }

    /// Elements of the storage from one index to the next, along each dimension.
    #[getter]
    fn stride<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.inner.stride())
    }

    /// Elements of the storage before the first one.
    #[getter]
    fn storage_offset(&self) -> u64 {
        self.inner.storage_offset()
    }

    /// The number of elements.
    #[getter]
    fn numel(&self) -> u64 {
        self.inner.numel()
    }

    /// The size in bytes of the elements in C order.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.inner.nbytes()
    }

    /// The size of an element in bytes.
    #[getter]
    fn itemsize(&self) -> u64 {
        self.inner.dtype().size()
    }

    /// The offset of the first element in its file, in bytes; `None` if the elements are computed.
    #[getter]
    fn file_offset(&self) -> Option<u64> {
        let start = self.inner.storage().file_offset()?;
        start.checked_add(self.inner.span().start)
    }

    /// Whether the elements are in C order without gaps.
    fn is_contiguous(&self) -> bool {
        self.inner.is_contiguous()
    }

    /// Whether two tensors share a storage.
    fn shares_storage(&self, other: &Self) -> bool {
        self.inner.storage().id() == other.inner.storage().id()
    }

    /// The SHA-256 of the elements in C order, little-endian.
    fn sha256(&self, py: Python<'_>) -> PyResult<String> {
        let hash = work::run(py, None, |observer| sha256(&self.inner.gathered(), observer))?;
        hash.map(|hash| hex(&hash)).map_err(|error| self.exception(py, error))
    }

    /// The statistics of the elements as JSON.
    fn statistics(&self, py: Python<'_>, histograms: bool) -> PyResult<String> {
        let set = |options: &mut InspectOptions| {
            options.statistics = true;
            options.histograms = histograms;
        };
        let tensors = Tensors::from([(self.name.clone(), self.inner.clone())]);
        views::inspected(py, tensors, &self.path, set, None)
    }

    /// The elements as a buffer and their strides: the private map of the file, or a copy.
    fn buffer(&self, py: Python<'_>, copy: bool) -> PyResult<(Buffer, Vec<i64>)> {
        let (memory, strides, _) = self.elements(py, copy)?;
        Ok((Buffer::new(memory), strides))
    }

    /// Fills a writable buffer of `nbytes` bytes with the elements in C order.
    fn read_into(&self, target: &Bound<'_, PyAny>) -> PyResult<()> {
        let tensor = &self.inner;
        let read = memory::fill_buffer(target, |bytes| {
            if bytes.len() as u64 != tensor.nbytes() {
                return Err(ReadError::from(std::io::ErrorKind::InvalidInput));
            }
            tensor.gathered().write_to(&mut SliceSink(bytes))
        })?;
        read.map_err(|error| self.exception(target.py(), error))
    }

    /// A view of a part, by integers, slices with positive steps, `...` and `None`.
    fn __getitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Self> {
        let tensor = index::view(py, &self.inner, key)?;
        Ok(Self::new(&self.maps, &self.path, &self.name, tensor))
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.inner.shape().first();
        let len = first.and_then(|len| usize::try_from(*len).ok());
        len.ok_or_else(|| pyo3::exceptions::PyTypeError::new_err("a tensor without dimensions has no len()"))
    }

    /// A DLPack capsule.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some() || dl_device.is_some_and(|device| device != (CPU, 0)) {
            return Err(PyBufferError::new_err(
                "the tensor is in the memory of the CPU: use `.torch(device)`",
            ));
        }
        let dtype = self.inner.dtype();
        let Some(dl_dtype) = dlpack_dtype(dtype) else {
            let text = format!("tensor `{}`: DLPack has no {dtype}; use `.torch()`", self.name);
            return Err(errors::own(py, ErrorKind::Unsupported, &text));
        };
        let (memory, strides, is_copied) = self.elements(py, copy == Some(true))?;
        if is_copied && copy == Some(false) {
            let text = format!("tensor `{}` is computed when it is read, which makes a copy", self.name);
            return Err(PyBufferError::new_err(text));
        }
        let is_versioned = max_version.is_some_and(|(major, _)| major >= 1);
        let dims = (signed(self.inner.shape()), strides);
        memory::dlpack_capsule(py, memory, dl_dtype, dims, (is_versioned, is_copied))
    }

    /// The device of the elements: the CPU.
    #[expect(clippy::unused_self, reason = "Python calls it on a tensor")]
    fn __dlpack_device__(&self) -> (i32, i32) {
        (CPU, 0)
    }
}

/// Returns the type code, bits and lanes of a dtype in `dlpack.h`.
fn dlpack_dtype(dtype: Dtype) -> Option<DlDataType> {
    let [int, uint, float, bfloat, complex, bool] = [0, 1, 2, 4, 5, 6];
    let (code, bits) = match dtype {
        Dtype::Float64 => (float, 64),
        Dtype::Float32 => (float, 32),
        Dtype::Float16 => (float, 16),
        Dtype::BFloat16 => (bfloat, 16),
        Dtype::Int64 => (int, 64),
        Dtype::Int32 => (int, 32),
        Dtype::Int16 => (int, 16),
        Dtype::Int8 => (int, 8),
        Dtype::UInt64 => (uint, 64),
        Dtype::UInt32 => (uint, 32),
        Dtype::UInt16 => (uint, 16),
        Dtype::UInt8 => (uint, 8),
        Dtype::Bool => (bool, 8),
        Dtype::Complex128 => (complex, 128),
        Dtype::Complex64 => (complex, 64),
        Dtype::Complex32 => (complex, 32),
        _ => return None,
    };
    Some(DlDataType { code, bits, lanes: 1 })
}
