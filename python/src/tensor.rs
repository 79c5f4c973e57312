//! Tensors of open files, read when they are needed.

#![expect(
    clippy::doc_markdown,
    clippy::doc_link_with_quotes,
    reason = "the doc comments are Python's docstrings"
)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::exceptions::{PyBufferError, PyMemoryError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use torch2carton::crates::byte_source::{self, hex, sha256};
use torch2carton::crates::inspect::InspectOptions;
use torch2carton::{CompoundKind, Dtype, ErrorKind, Sink, Tensors, Window};

use crate::maps::Maps;
use crate::memory::{self, Buffer, CPU, DlDataType, Memory};
use crate::opened::Opened;
use crate::{errors, index, views, work};

/// A tensor of an open file. Its shape and dtype are known; its elements are read when they are asked for.
///
/// Subscripts return views of a part, of which only the part is read.
///
/// >>> weight = torch2carton.open("model.pt")["weight"]
/// >>> weight.shape, weight.dtype, weight.nbytes
/// ((2, 3), 'float32', 24)
/// >>> weight[1, ::2].numpy()
/// array([3., 5.], dtype=float32)
#[pyclass(frozen, weakref, module = "torch2carton._tensor")]
pub(crate) struct Tensor {
    place: Place,
}

/// Where a tensor is.
enum Place {
    /// Position in the list of an open file. Nothing of the tensor is copied.
    Listed { opened: Arc<Opened>, position: usize },
    /// A tensor of its own, such as a part.
    Own(Box<OwnTensor>),
}

/// A tensor that is not in the list of an open file.
struct OwnTensor {
    maps: Arc<Maps>,
    path: Arc<Path>,
    name: String,
    tensor: torch2carton::Tensor,
}

/// Returns a word for the kind of a compound tensor, such as `sparse_coo`.
pub(crate) fn kind_name(kind: &CompoundKind) -> String {
    match kind {
        CompoundKind::Quantized { .. } => "quantized".to_owned(),
        CompoundKind::Sparse { layout } | CompoundKind::Blocks { scheme: layout } => layout.clone(),
        CompoundKind::Nested => "nested".to_owned(),
        CompoundKind::Jagged => "jagged".to_owned(),
        CompoundKind::Subclass { class, .. } => class.clone(),
        CompoundKind::Meta { .. } => "meta".to_owned(),
    }
}

/// Sink that fills a slice.
pub(crate) struct SliceSink<'s>(pub(crate) &'s mut [u8]);

impl Sink for SliceSink<'_> {
    fn write(&mut self, window: Window) -> Result<(), byte_source::Error> {
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
        let (maps, path) = (Arc::clone(maps), Arc::clone(path));
        Self { place: Place::Own(Box::new(OwnTensor { maps, path, name: name.to_owned(), tensor })) }
    }

    /// Returns the tensor at a position in the list of an open file; `None` if the list is shorter.
    pub(crate) fn listed(opened: &Arc<Opened>, position: usize) -> Option<Self> {
        opened.tensors.get_index(position)?;
        Some(Self { place: Place::Listed { opened: Arc::clone(opened), position } })
    }

    /// Returns the name and the tensor.
    fn named(&self) -> (&str, &torch2carton::Tensor) {
        match &self.place {
            Place::Listed { opened, position } => {
                opened.tensors.get_index(*position).expect("`listed` found it, and the list never changes")
            }
            Place::Own(own) => (&own.name, &own.tensor),
        }
    }

    fn inner(&self) -> &torch2carton::Tensor {
        self.named().1
    }

    fn file(&self) -> (&Arc<Maps>, &Arc<Path>) {
        match &self.place {
            Place::Listed { opened, .. } => (&opened.maps, &opened.path),
            Place::Own(own) => (&own.maps, &own.path),
        }
    }

    /// Returns the elements in memory, their strides in elements, and whether they are a copy: if `is_copied`, if no file has them
    /// as they are, and if they are not at multiples of their size although they have to be (`is_aligned`).
    fn elements(
        &self,
        py: Python<'_>,
        is_copied: bool,
        is_aligned: bool,
    ) -> PyResult<(Memory, Vec<i64>, bool)> {
        let (name, tensor) = self.named();
        if !is_copied {
            let mapped = self.file().0.memory(tensor.storage(), tensor.span());
            let mapped = mapped.map_err(|error| self.exception(py, error))?;
            let fits = |memory: &Memory| !is_aligned || memory.is_aligned(tensor.dtype().size());
            if let Some(memory) = mapped.filter(fits) {
                return Ok((memory, signed(tensor.stride()), false));
            }
        }
        let mut bytes = Vec::new();
        let reserved =
            usize::try_from(tensor.nbytes()).ok().and_then(|len| bytes.try_reserve_exact(len).ok());
        if reserved.is_none() {
            let text = format!("tensor `{name}` needs {} bytes of memory", tensor.nbytes());
            return Err(PyMemoryError::new_err(text));
        }
        work::send(py, &tensor.gathered(), &mut bytes)?.map_err(|error| self.exception(py, error))?;
        let strides = signed(&torch2carton::crates::tensor::contiguous_strides(tensor.shape()));
        Ok((Memory::owned(bytes), strides, true))
    }

    fn exception(&self, py: Python<'_>, error: byte_source::Error) -> PyErr {
        errors::read_exception(py, error, self.file().1, self.named().0)
    }
}

/// Converts sizes, which fit 63 bits.
fn signed(sizes: &[u64]) -> Vec<i64> {
    sizes.iter().map(|size| i64::try_from(*size).unwrap_or(i64::MAX)).collect()
}

#[pymethods]
impl Tensor {
    /// The name in the file, its parts joined by dots.
    #[getter]
    fn name(&self) -> &str {
        self.named().0
    }

    /// The path of the file or folder.
    #[getter]
    fn path(&self) -> PathBuf {
        self.file().1.to_path_buf()
    }

    /// PyTorch's name of the dtype, such as `bfloat16`.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        dtype_name(py, self.inner().dtype())
    }

    /// The number of elements along each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.inner().shape())
    }

    /// Elements of the storage from one index to the next, along each dimension.
    #[getter]
    fn stride<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.inner().stride())
    }

    /// Elements of the storage before the first one.
    #[getter]
    fn storage_offset(&self) -> u64 {
        self.inner().storage_offset()
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.inner().shape().len()
    }

    /// The number of elements.
    #[getter]
    fn numel(&self) -> u64 {
        self.inner().numel()
    }

    /// The size in bytes of the elements in C order.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.inner().nbytes()
    }

    /// The size of an element in bytes.
    #[getter]
    fn itemsize(&self) -> u64 {
        self.inner().dtype().size()
    }

    /// The offset of the first element in its file, in bytes; None if the elements are computed.
    #[getter]
    fn file_offset(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        let start = self.inner().storage().locate().map_err(|error| self.exception(py, error))?;
        Ok(start.and_then(|start| start.checked_add(self.inner().span().start)))
    }

    /// Whether the elements are in C order without gaps.
    fn is_contiguous(&self) -> bool {
        self.inner().is_contiguous()
    }

    /// Whether two tensors of one open file are views of one storage, as tied weights are.
    fn shares_storage(&self, other: &Self) -> bool {
        self.inner().storage().id() == other.inner().storage().id()
    }

    /// The SHA-256 of the elements in C order, little-endian, as 64 hexadecimal digits.
    ///
    /// Raises:
    ///     DamagedError: the bytes do not match the checksum in the file
    ///     ChangedError: the file changed after it was opened
    ///
    /// >>> torch2carton.open("model.pt")["bias"].sha256()[:16]
    /// 'af5570f5a1810b7a'
    fn sha256(&self, py: Python<'_>) -> PyResult<String> {
        let hash = work::run(py, None, |observer| sha256(&self.inner().gathered(), observer))?;
        hash.map(|hash| hex(&hash)).map_err(|error| self.exception(py, error))
    }

    /// The statistics of the elements; None if they are not numbers.
    ///
    /// >>> stats = torch2carton.open("model.pt")["weight"].stats()
    /// >>> stats.min, stats.max, stats.zeros
    /// (0.0, 5.0, 1)
    #[pyo3(signature = (*, histogram=false))]
    fn stats(slf: Bound<'_, Self>, histogram: bool) -> PyResult<Bound<'_, PyAny>> {
        python_function(slf.py(), "to_statistics")?.call1((slf, histogram))
    }

    /// The statistics of the elements as JSON.
    fn _statistics(&self, py: Python<'_>, histograms: bool) -> PyResult<String> {
        let set = |options: &mut InspectOptions| {
            options.statistics = true;
            options.histograms = histograms;
        };
        let (name, tensor) = self.named();
        let tensors = Tensors::from([(name.to_owned(), tensor.clone())]);
        views::inspected(py, tensors, self.file().1, set, None)
    }

    /// The elements in C order, little-endian.
    ///
    /// >>> torch2carton.open("model.pt")["bias"].tobytes()
    /// b'\x00\x00\x00\x00\x00\x00\x00\x00'
    fn tobytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let len = usize::try_from(self.inner().nbytes()).unwrap_or(usize::MAX);
        PyBytes::new_with(py, len, |bytes| {
            let sent = work::send(py, &self.inner().gathered(), &mut SliceSink(bytes))?;
            sent.map_err(|error| self.exception(py, error))
        })
    }

    /// The path and the backend.
    #[getter]
    fn _source(&self) -> (&OsStr, &'static str) {
        let (maps, path) = self.file();
        (path.as_os_str(), maps.backend().name())
    }

    /// Another view of the tensor's storage. `offset`, `shape` and `stride` count elements.
    fn _view(&self, py: Python<'_>, shape: Vec<u64>, stride: Vec<u64>, offset: u64) -> PyResult<Self> {
        let (name, tensor) = self.named();
        let (maps, path) = self.file();
        let storage = tensor.storage().clone();
        let made = torch2carton::Tensor::new(tensor.dtype(), shape, stride, offset, storage);
        let made = made.map_err(|error| {
            errors::own(py, ErrorKind::Changed, &format!("{}: tensor `{name}`: {error}", path.display()))
        })?;
        Ok(Self::new(maps, path, name, made))
    }

    /// The elements as a buffer and their strides: the private map of the file, or a copy. With `aligned`, elements that are
    /// not at multiples of their size in the file are copied.
    fn _buffer(&self, py: Python<'_>, copy: bool, aligned: bool) -> PyResult<(Buffer, Vec<i64>)> {
        let (memory, strides, _) = self.elements(py, copy, aligned)?;
        Ok((Buffer::new(memory), strides))
    }

    /// An array of NumPy with the shape of the tensor: a view of the file, or a copy.
    ///
    /// The file is mapped privately. A write into the array copies the page and does not reach the file. The map lives as
    /// long as one of its arrays. Tensors that are computed, compressed or big-endian are copied.
    ///
    /// Raises:
    ///     MissingPackageError: NumPy is not installed, or `ml_dtypes`, which bfloat16 and float8 need
    ///     UnsupportedError: NumPy has no such dtype
    ///     DamagedError: the bytes do not match their checksum, which is compared where they are copied as a whole
    ///
    /// >>> torch2carton.open("model.pt")["bias"].numpy()
    /// array([0., 0.], dtype=float32)
    #[pyo3(signature = (*, copy=false))]
    fn numpy(slf: Bound<'_, Self>, copy: bool) -> PyResult<Bound<'_, PyAny>> {
        python_function(slf.py(), "to_numpy")?.call1((slf, copy))
    }

    /// A tensor of PyTorch: a view of the file, or a copy.
    ///
    /// On the CPU, the file is mapped privately, as by `torch.load(mmap=True)`: a write does not reach the file. Tensors that are
    /// not aligned in their file are copied, too: many in files from before PyTorch 1.6.
    ///
    /// Raises:
    ///     MissingPackageError: PyTorch is not installed
    ///     UnsupportedError: this version of PyTorch has no such dtype
    ///     DamagedError: the bytes do not match their checksum, which is compared where they are copied as a whole
    ///
    /// >>> torch2carton.open("model.pt")["bias"].torch()
    /// tensor([0., 0.])
    #[pyo3(signature = (device=None, *, copy=false), text_signature = "($self, device='cpu', *, copy=False)")]
    fn torch<'py>(
        slf: Bound<'py, Self>,
        device: Option<Bound<'py, PyAny>>,
        copy: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        python_function(slf.py(), "to_torch")?.call1((slf, device, copy))
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        python_function(slf.py(), "to_array")?.call1((slf, dtype, copy))
    }

    /// The path, the name and the part, from which another process opens the tensor again.
    fn __reduce__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyAny>> {
        python_function(slf.py(), "reduce")?.call1((slf,))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (name, tensor) = self.named();
        let space = if name.is_empty() { "" } else { " " };
        let shape = self.shape(py)?.repr()?;
        Ok(format!("<Tensor{space}{name}: {} {shape}>", tensor.dtype().name()))
    }

    /// Fills a writable buffer of `nbytes` bytes, such as a `bytearray` or an array, with the elements in C order.
    ///
    /// >>> target = bytearray(8)
    /// >>> torch2carton.open("model.pt")["bias"].read_into(target)
    fn read_into(&self, target: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, tensor) = (target.py(), self.inner());
        memory::fill_buffer(target, tensor.nbytes(), |bytes| {
            let sent = work::send(py, &tensor.gathered(), &mut SliceSink(bytes))?;
            sent.map_err(|error| self.exception(py, error))
        })
    }

    /// A view of a part, by integers, slices with positive steps, `...` and `None`.
    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Self> {
        let tensor = index::view(self.inner(), key)?;
        let (maps, path) = self.file();
        Ok(Self::new(maps, path, self.named().0, tensor))
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.inner().shape().first();
        let len = first.and_then(|len| usize::try_from(*len).ok());
        len.ok_or_else(|| pyo3::exceptions::PyTypeError::new_err("a tensor without dimensions has no len()"))
    }

    /// The parts along the first dimension.
    fn __iter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyAny>> {
        python_function(slf.py(), "parts")?.call1((slf,))
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
        let dtype = self.inner().dtype();
        let Some(dl_dtype) = dlpack_dtype(dtype) else {
            let text = format!("tensor `{}`: DLPack has no {dtype}; use `.torch()`", self.named().0);
            return Err(errors::own(py, ErrorKind::Unsupported, &text));
        };
        let (memory, strides, is_copied) = self.elements(py, copy == Some(true), true)?;
        if is_copied && copy == Some(false) {
            let text = format!(
                "tensor `{}` is computed when it is read, or not aligned in its file, which makes a copy",
                self.named().0
            );
            return Err(PyBufferError::new_err(text));
        }
        let is_versioned = max_version.is_some_and(|(major, _)| major >= 1);
        let dims = (signed(self.inner().shape()), strides);
        memory::dlpack_capsule(py, memory, dl_dtype, dims, (is_versioned, is_copied))
    }

    /// The device of the elements: the CPU.
    #[expect(clippy::unused_self, reason = "Python calls it on a tensor")]
    fn __dlpack_device__(&self) -> (i32, i32) {
        (CPU, 0)
    }
}

/// Returns PyTorch's name of a dtype. The text of a common one is made once.
fn dtype_name(py: Python<'_>, dtype: Dtype) -> Bound<'_, PyString> {
    let known = match dtype {
        Dtype::BFloat16 => intern!(py, "bfloat16"),
        Dtype::Float16 => intern!(py, "float16"),
        Dtype::Float32 => intern!(py, "float32"),
        Dtype::Float8E4M3Fn => intern!(py, "float8_e4m3fn"),
        Dtype::Int32 => intern!(py, "int32"),
        Dtype::Int64 => intern!(py, "int64"),
        Dtype::Int8 => intern!(py, "int8"),
        Dtype::UInt8 => intern!(py, "uint8"),
        other => return PyString::intern(py, other.name()),
    };
    known.clone()
}

/// Returns a function of `torch2carton/_tensor.py`.
fn python_function<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import(intern!(py, "torch2carton._tensor"))?.getattr(name)
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
