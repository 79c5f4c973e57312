//! Storages of a pickle: bytes that several tensors may share.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use torch2carton::crates::byte_source;
use torch2carton::{Dtype, ErrorKind};

use crate::maps::Maps;
use crate::memory::{self, Buffer, Memory};
use crate::tensor::{SliceSink, Tensor};
use crate::{errors, work};

/// The bytes of a storage, read when they are asked for.
#[pyclass(frozen, module = "torch2carton._native")]
pub(crate) struct Storage {
    maps: Arc<Maps>,
    path: PathBuf,
    inner: torch2carton::Storage,
}

impl Storage {
    pub(crate) fn new(maps: &Arc<Maps>, path: &Path, storage: torch2carton::Storage) -> Self {
        Self { maps: Arc::clone(maps), path: path.to_owned(), inner: storage }
    }

    fn exception(&self, py: Python<'_>, error: byte_source::Error) -> PyErr {
        errors::exception(py, &error, Some(&self.path))
    }
}

/// Size in bytes of the largest element.
const ALIGNMENT: u64 = 16;

#[pymethods]
impl Storage {
    /// The number of bytes.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.inner.len()
    }

    /// The offset of the first byte in the file; None if the bytes are computed or were compressed.
    #[getter]
    fn file_offset(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.inner.locate().map_err(|error| self.exception(py, error))
    }

    /// The bytes: the private map of the file, or a copy where no file has them as they are and aligned for every dtype.
    fn buffer(&self, py: Python<'_>) -> PyResult<Buffer> {
        let len = self.inner.len();
        let mapped = self.maps.memory(&self.inner, 0..len).map_err(|error| self.exception(py, error))?;
        if let Some(memory) = mapped.filter(|memory| memory.is_aligned(ALIGNMENT)) {
            return Ok(Buffer::new(memory));
        }
        let mut bytes = Vec::new();
        let reserved = usize::try_from(len).ok().and_then(|len| bytes.try_reserve_exact(len).ok());
        reserved.ok_or_else(|| PyMemoryError::new_err(format!("a storage needs {len} bytes of memory")))?;
        work::send(py, &self.inner, &mut bytes)?.map_err(|error| self.exception(py, error))?;
        Ok(Buffer::new(Memory::owned(bytes)))
    }

    /// A tensor over the bytes from `start` on. `offset`, `shape` and `stride` count elements.
    fn view(
        &self,
        py: Python<'_>,
        dtype: &str,
        shape: Vec<u64>,
        stride: Vec<u64>,
        offset: u64,
        start: u64,
    ) -> PyResult<Tensor> {
        let bad = |text: String| errors::own(py, ErrorKind::Damaged, &text);
        let dtype = Dtype::from_name(dtype).ok_or_else(|| bad(format!("there is no dtype {dtype}")))?;
        let first = start.checked_div(dtype.size()).and_then(|first| first.checked_add(offset));
        let first = first.ok_or_else(|| bad("a storage offset above 2^63".to_owned()))?;
        let tensor = torch2carton::Tensor::new(dtype, shape, stride, first, self.inner.clone());
        let tensor = tensor.map_err(|error| bad(format!("{}: {error}", self.path.display())))?;
        Ok(Tensor::new(&self.maps, &Arc::from(self.path.as_path()), "", tensor))
    }

    /// Fills a writable buffer of `nbytes` bytes, and compares the checksum in the file if there is one.
    fn read_into(&self, target: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, storage) = (target.py(), &self.inner);
        memory::fill_buffer(target, storage.len(), |bytes| {
            work::send(py, storage, &mut SliceSink(bytes))?.map_err(|error| self.exception(py, error))
        })
    }
}
