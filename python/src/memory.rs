//! Memory that Python objects share with files: private maps, the buffer protocol and DLPack. The only `unsafe` code of the
//! package.
//!
//! Facts: mmap(2); "Buffer Protocol" in Python's C API reference; `dlpack.h` 1.1 and "Python Specification for DLPack".

#![expect(unsafe_code, reason = "C APIs hand out addresses")]

use std::ffi::{CStr, c_int, c_void};
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::{MmapMut, MmapOptions};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use torch2carton::ErrorKind;

use crate::errors;

/// A whole file, mapped privately: a write copies the page and is visible in this process only.
#[derive(Debug)]
pub(crate) struct PrivateMap {
    /// `None` for an empty file. Nothing in Rust reads or writes it after its creation, because Python may do both.
    map: Option<MmapMut>,
}

impl PrivateMap {
    /// Maps the first `len` bytes of `file`.
    pub(crate) fn new(file: &File, len: u64) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        if len == 0 {
            return Ok(Self { map: None });
        }
        // SAFETY: the map is private to this process. If another program truncates the file, touching a lost page ends the
        // process, as with `torch.load(mmap=True)`.
        let map = unsafe { MmapOptions::new().len(len).map_copy(file)? };
        Ok(Self { map: Some(map) })
    }
}

/// Bytes that Python objects may read and write, kept in memory as long as one of them exists.
#[derive(Clone, Debug)]
pub(crate) enum Memory {
    /// Range of a mapped file, in bytes.
    Mapped {
        map: Arc<PrivateMap>,
        start: usize,
        len: usize,
    },
    Owned(Arc<OwnedBytes>),
}

/// Bytes on the heap, whose address stays the same.
#[derive(Debug)]
pub(crate) struct OwnedBytes {
    address: NonNull<u8>,
    len: usize,
    capacity: usize,
}

// SAFETY: the memory is plain bytes with a fixed address, which only Python reads and writes, by its own rules.
unsafe impl Send for OwnedBytes {}
// SAFETY: as above.
unsafe impl Sync for OwnedBytes {}

impl Drop for OwnedBytes {
    fn drop(&mut self) {
        // SAFETY: the three numbers come from a vector that was never dropped.
        drop(unsafe { Vec::from_raw_parts(self.address.as_ptr(), self.len, self.capacity) });
    }
}

impl Memory {
    /// Takes bytes on the heap.
    pub(crate) fn owned(bytes: Vec<u8>) -> Self {
        let mut bytes = std::mem::ManuallyDrop::new(bytes);
        let (len, capacity) = (bytes.len(), bytes.capacity());
        let address = NonNull::new(bytes.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Self::Owned(Arc::new(OwnedBytes { address, len, capacity }))
    }

    /// Returns a range of a map. Returns `None` if the range is not inside the map.
    pub(crate) fn mapped(map: &Arc<PrivateMap>, start: u64, len: u64) -> Option<Self> {
        let (start, len) = (usize::try_from(start).ok()?, usize::try_from(len).ok()?);
        let all = map.map.as_ref().map_or(0, |map| map.len());
        (start.checked_add(len)? <= all).then(|| Self::Mapped { map: Arc::clone(map), start, len })
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Mapped { len, .. } => *len,
            Self::Owned(owned) => owned.len,
        }
    }

    /// Returns true if the first byte is at a multiple of `size`. PyTorch's kernels need elements that are at multiples of their
    /// size: some read complex numbers with instructions that end the process elsewhere.
    pub(crate) fn is_aligned(&self, size: u64) -> bool {
        usize::try_from(size).is_ok_and(|size| self.address().addr().is_multiple_of(size.max(1)))
    }

    /// Returns the address of the first byte.
    fn address(&self) -> *mut u8 {
        match self {
            Self::Mapped { map, start, .. } => {
                // `mapped` checked that the range is inside.
                map.map
                    .as_ref()
                    .map_or(std::ptr::null_mut(), |map| map.as_ptr().wrapping_add(*start).cast_mut())
            }
            Self::Owned(owned) => owned.address.as_ptr(),
        }
    }
}

/// Writable bytes for `memoryview`, `numpy.frombuffer` and `torch.frombuffer`.
#[pyclass(frozen, module = "torch2carton._native")]
pub(crate) struct Buffer {
    memory: Memory,
}

impl Buffer {
    pub(crate) fn new(memory: Memory) -> Self {
        Self { memory }
    }
}

#[pymethods]
impl Buffer {
    fn __len__(&self) -> usize {
        self.memory.len()
    }

    /// # Safety
    /// Python calls this with a view that it owns.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let memory = &slf.get().memory;
        let len =
            isize::try_from(memory.len()).map_err(|_| PyBufferError::new_err("more than 2^63 bytes"))?;
        // SAFETY: the view keeps a reference to this object, which keeps the memory.
        let done =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), memory.address().cast(), len, 0, flags) };
        if done == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// Calls `fill` with the bytes of a writable, contiguous Python buffer, which must have `len` bytes.
pub(crate) fn fill_buffer(
    target: &Bound<'_, PyAny>,
    len: u64,
    fill: impl FnOnce(&mut [u8]) -> PyResult<()>,
) -> PyResult<()> {
    // The cast makes bytes of elements of any type, and refuses what is not contiguous.
    let bytes = PyMemoryView::from(target)?.call_method1("cast", ("B",))?;
    let buffer: PyBuffer<u8> = PyBuffer::get(&bytes)?;
    if buffer.readonly() || !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err("expected a writable buffer of contiguous bytes"));
    }
    let found = buffer.len_bytes();
    if found as u64 != len {
        let text = format!("expected a buffer of {len} bytes, found {found}");
        return Err(errors::own(target.py(), ErrorKind::Input, &text));
    }
    let address = if found == 0 { NonNull::dangling().as_ptr() } else { buffer.buf_ptr().cast::<u8>() };
    // SAFETY: the exporter keeps the memory, and its size, while `buffer` exists. Other threads of Python that use the
    // object meanwhile see parts of the bytes, as with `readinto` of Python's own files.
    fill(unsafe { std::slice::from_raw_parts_mut(address, found) })
}

/// `DLDevice` of `dlpack.h`.
#[repr(C)]
struct DlDevice {
    device_type: c_int,
    device_id: i32,
}

/// `DLDataType` of `dlpack.h`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DlDataType {
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
}

/// `DLTensor` of `dlpack.h`.
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    ndim: i32,
    dtype: DlDataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor` of `dlpack.h`.
#[repr(C)]
struct DlManaged {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DlManaged)>,
}

/// `DLManagedTensorVersioned` of `dlpack.h`.
#[repr(C)]
struct DlManagedVersioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DlManagedVersioned)>,
    flags: u64,
    tensor: DlTensor,
}

/// What a DLPack tensor points to.
struct DlContext {
    _memory: Memory,
    shape: Box<[i64]>,
    strides: Box<[i64]>,
}

const OLD_NAME: &CStr = c"dltensor";
const NAME: &CStr = c"dltensor_versioned";
/// `kDLCPU` of `dlpack.h`.
pub(crate) const CPU: c_int = 1;
/// `DLPACK_FLAG_BITMASK_IS_COPIED` of `dlpack.h`.
const IS_COPIED: u64 = 2;

/// Returns a capsule with a tensor over `memory`. `strides` counts elements. `is_versioned` chooses the struct of DLPack 1.
pub(crate) fn dlpack_capsule(
    py: Python<'_>,
    memory: Memory,
    dtype: DlDataType,
    (shape, strides): (Vec<i64>, Vec<i64>),
    (is_versioned, is_copied): (bool, bool),
) -> PyResult<Bound<'_, PyAny>> {
    let data = memory.address();
    let context = Box::new(DlContext {
        _memory: memory,
        shape: shape.into_boxed_slice(),
        strides: strides.into_boxed_slice(),
    });
    let context = Box::into_raw(context);
    // SAFETY: `context` was just allocated, and its slices do not move.
    let (shape, strides) = unsafe { (&mut (*context).shape, &mut (*context).strides) };
    let tensor = DlTensor {
        data: data.cast(),
        device: DlDevice { device_type: CPU, device_id: 0 },
        ndim: i32::try_from(shape.len()).unwrap_or(i32::MAX),
        dtype,
        shape: shape.as_mut_ptr(),
        strides: strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let context = context.cast::<c_void>();
    let (managed, name): (*mut c_void, _) = if is_versioned {
        let flags = if is_copied { IS_COPIED } else { 0 };
        let managed = DlManagedVersioned {
            major: 1,
            minor: 0,
            context,
            deleter: Some(delete_versioned),
            flags,
            tensor,
        };
        (Box::into_raw(Box::new(managed)).cast(), NAME)
    } else {
        (Box::into_raw(Box::new(DlManaged { tensor, context, deleter: Some(delete_old) })).cast(), OLD_NAME)
    };
    // SAFETY: the name is static, and the destructor frees what the consumer of the capsule did not take.
    unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(managed, name.as_ptr(), Some(drop_capsule)))
    }
}

/// Frees a tensor that `dlpack_capsule` made.
unsafe extern "C" fn delete_old(managed: *mut DlManaged) {
    if !managed.is_null() {
        // SAFETY: both were made by `Box::into_raw`, and DLPack calls a deleter once.
        unsafe {
            let managed = Box::from_raw(managed);
            drop(Box::from_raw(managed.context.cast::<DlContext>()));
        }
    }
}

/// Frees a tensor that `dlpack_capsule` made.
unsafe extern "C" fn delete_versioned(managed: *mut DlManagedVersioned) {
    if !managed.is_null() {
        // SAFETY: both were made by `Box::into_raw`, and DLPack calls a deleter once.
        unsafe {
            let managed = Box::from_raw(managed);
            drop(Box::from_raw(managed.context.cast::<DlContext>()));
        }
    }
}

/// Frees the tensor of a capsule that no one consumed: a consumer renames the capsule.
unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with a capsule that `dlpack_capsule` made; a capsule under another name is not touched.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, OLD_NAME.as_ptr()) == 1 {
            delete_old(ffi::PyCapsule_GetPointer(capsule, OLD_NAME.as_ptr()).cast());
        }
    }
}
