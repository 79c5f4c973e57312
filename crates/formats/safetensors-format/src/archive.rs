//! Layout of a safetensors file before any tensor is read, so that the file is written in one pass.
//!
//! Facts: `prepare` in `safetensors/src/tensor.rs` 0.8: tensors are sorted by dtype, the widest first, then by the bytes of
//! their names; they follow each other without holes, and the header is padded with spaces to a multiple of 8 bytes. The
//! official writer keeps metadata in a hash map, so its order is random; this writer keeps the caller's order.

use std::cmp::Reverse;
use std::io;

use byte_source::{Blob, Sink, WINDOW, Window};
use foldhash::{HashSet, HashSetExt};
use safetensors::tensor::TensorInfo;
use serde::ser::{Serialize, SerializeMap, Serializer};
use tensor::{Dtype, Tensor};

use crate::dtype::{self, row_by_dtype};
use crate::{Error, MAX_HEADER, METADATA_KEY, Result};

/// Alignment of the header's length in bytes, so that the tensors are aligned.
const ALIGNMENT: usize = 8;

/// A safetensors file with a computed layout. As a [`Blob`] it sends the whole file.
///
/// ```
/// use byte_source::{Blob, Sha256};
/// use safetensors_format::SafetensorsArchive;
/// use tensor::{Dtype, Storage, Tensor};
///
/// let tensor = Tensor::new(Dtype::UInt8, vec![3], vec![1], 0, Storage::owned(vec![1, 2, 3]))?;
/// let tensors = vec![("w".to_owned(), tensor)];
/// let archive = SafetensorsArchive::new(&tensors, &[("format".to_owned(), "pt".to_owned())])?;
/// let header = r#"{"__metadata__":{"format":"pt"},"w":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}"#;
/// assert_eq!(archive.len(), 8 + (header.len() as u64).next_multiple_of(8) + 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SafetensorsArchive<'t> {
    /// Length of the header as 8 bytes, then the header.
    head: Vec<u8>,
    /// Tensors in the order of the file.
    tensors: Vec<&'t (String, Tensor)>,
    len: u64,
}

impl<'t> SafetensorsArchive<'t> {
    /// Lays out a file of these tensors and metadata. The metadata keeps its order.
    ///
    /// # Errors
    /// [`Error::Duplicate`] when two tensors have the same name, [`Error::NoDtype`] when safetensors has no name for a
    /// dtype, [`Error::HalfElement`] for a `float4` tensor without dimensions, [`Error::Reserved`] for a tensor called
    /// `__metadata__`, [`Error::TooLarge`] when a size does not fit `usize`, [`Error::TooLong`] when the header would be
    /// longer than the format allows.
    pub fn new(
        tensors: impl IntoIterator<Item = &'t (String, Tensor)>,
        metadata: &[(String, String)],
    ) -> Result<Self> {
        let mut tensors: Vec<&(String, Tensor)> = tensors.into_iter().collect();
        let mut end = 0_u64;
        let mut names = HashSet::with_capacity(tensors.len());
        for (name, tensor) in &tensors {
            // This loop finds all errors of the tensors, which do not depend on their order and offsets.
            header_entry(name, tensor, &mut end)?;
            if !names.insert(name.as_str()) {
                return Err(Error::Duplicate { tensor: name.clone() });
            }
        }
        drop(names);
        tensors.sort_by_cached_key(|(name, tensor)| {
            (Reverse(row_by_dtype(tensor.dtype()).map(|row| row.official)), name.as_str())
        });
        let header = HeaderJson { metadata, tensors: &tensors };
        // A header may have 100 MB: its length is counted first, to allocate exactly that much memory.
        let mut counted = ByteCounter(0);
        serde_json::to_writer(&mut counted, &header).map_err(Error::Json)?;
        let len = counted.0.next_multiple_of(ALIGNMENT as u64);
        if len > MAX_HEADER {
            return Err(Error::TooLong { len });
        }
        let whole = usize::try_from(len).unwrap_or(usize::MAX).saturating_add(ALIGNMENT);
        let mut head = Vec::with_capacity(whole);
        head.extend(len.to_le_bytes());
        serde_json::to_writer(&mut head, &header).map_err(Error::Json)?;
        head.resize(whole, b' ');
        Ok(Self { len: end.saturating_add(head.len() as u64), head, tensors })
    }

    /// Returns the tensors, in the order of the file.
    pub fn tensors(&self) -> impl Iterator<Item = &'t (String, Tensor)> {
        self.tensors.iter().copied()
    }
}

/// Writer that only counts bytes.
struct ByteCounter(u64);

impl io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Blob for SafetensorsArchive<'_> {
    fn len(&self) -> u64 {
        self.len
    }

    fn write_to(&self, sink: &mut dyn Sink) -> Result<(), byte_source::Error> {
        for chunk in self.head.chunks(WINDOW) {
            sink.write(Window::owned(chunk.to_vec()))?;
        }
        self.tensors.iter().try_for_each(|(name, tensor)| {
            tensor.gathered().write_to(sink).map_err(|error| error.in_tensor(name))
        })
    }
}

/// Returns the header's entry of a tensor that starts at `end`, and advances `end` past the tensor.
fn header_entry(name: &str, tensor: &Tensor, end: &mut u64) -> Result<TensorInfo> {
    if name == METADATA_KEY {
        return Err(Error::Reserved);
    }
    let no_dtype = || Error::NoDtype { tensor: name.to_owned(), dtype: tensor.dtype() };
    let row = row_by_dtype(tensor.dtype()).ok_or_else(no_dtype)?;
    let too_large = || Error::TooLarge { tensor: name.to_owned() };
    let usize_of = |n: u64| usize::try_from(n).map_err(|_| too_large());
    let mut shape = tensor.shape().iter().map(|size| usize_of(*size)).collect::<Result<Vec<_>>>()?;
    if row.pack_factor > 1 {
        // PyTorch counts pairs along the last dimension, the format counts single values.
        let last = shape.last_mut().ok_or_else(|| Error::HalfElement { tensor: name.to_owned() })?;
        *last = last.checked_mul(usize_of(row.pack_factor)?).ok_or_else(too_large)?;
    }
    let start = *end;
    *end = end.saturating_add(tensor.nbytes());
    Ok(TensorInfo { dtype: row.official, shape, data_offsets: (usize_of(start)?, usize_of(*end)?) })
}

/// Returns true if a safetensors file can hold tensors of this dtype.
pub fn is_dtype_supported(dtype: Dtype) -> bool {
    dtype::row_by_dtype(dtype).is_some()
}

/// JSON header with its entries in the order of the file.
struct HeaderJson<'h> {
    metadata: &'h [(String, String)],
    tensors: &'h [&'h (String, Tensor)],
}

impl Serialize for HeaderJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.metadata.is_empty() {
            map.serialize_entry(METADATA_KEY, &MetadataJson(self.metadata))?;
        }
        let mut end = 0;
        for (name, tensor) in self.tensors {
            let info = header_entry(name, tensor, &mut end).map_err(serde::ser::Error::custom)?;
            map.serialize_entry(name, &info)?;
        }
        map.end()
    }
}

struct MetadataJson<'h>(&'h [(String, String)]);

impl Serialize for MetadataJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, text)| (key, text)))
    }
}
