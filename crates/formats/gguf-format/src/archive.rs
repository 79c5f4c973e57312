//! Layout of a GGUF file before any tensor is read, so that the file is written in one pass.
//!
//! Facts: `gguf_writer.py` of the Python package `gguf` 0.19.0: version 3, little-endian; each tensor is padded with zeros, the last
//! one, too.

use byte_source::{Blob, Sink, WINDOW, Window};
use tensor::Tensor;

use crate::header::{MAGIC, repeated};
use crate::value::put_text;
use crate::{ALIGNMENT, EntryError, Error, GgmlType, GgufValue, MAX_DIMS, Result};

/// A tensor to be written.
#[derive(Clone, Debug)]
pub struct GgufOutput {
    pub name: String,
    pub kind: &'static GgmlType,
    /// Number of elements along each dimension; that of a row is the last one.
    pub shape: Vec<u64>,
    /// Tensor with the bytes: elements, or blocks as `uint8`.
    pub data: Tensor,
}

/// A GGUF file with a computed layout. As a [`Blob`] it sends the whole file.
#[derive(Debug)]
pub struct GgufArchive<T> {
    /// Header with its padding.
    head: Vec<u8>,
    tensors: T,
    len: u64,
}

impl<T: AsRef<[GgufOutput]>> GgufArchive<T> {
    /// Lays out a file of these keys and tensors, both in their order.
    ///
    /// # Errors
    /// When a key or a tensor appears twice, an alignment is given, which this writer chooses, or the shape of a tensor does not fit its
    /// type or its data.
    pub fn new(entries: &[(String, GgufValue)], tensors: T) -> Result<Self> {
        if let Some(key) = repeated(entries.iter().map(|(key, _)| key)) {
            return Err(Error::DuplicateKey { key });
        }
        if entries.iter().any(|(key, _)| key == crate::ALIGNMENT_KEY) {
            return Err(Error::Alignment);
        }
        let all = tensors.as_ref();
        if let Some(tensor) = repeated(all.iter().map(|it| &it.name)) {
            return Err(Error::DuplicateTensor { tensor });
        }
        let mut head = MAGIC.to_vec();
        head.extend(3_u32.to_le_bytes());
        head.extend((all.len() as u64).to_le_bytes());
        head.extend((entries.len() as u64).to_le_bytes());
        for (key, value) in entries {
            put_text(key.as_bytes(), &mut head);
            head.extend((value.value_type() as u32).to_le_bytes());
            value.encode(&mut head);
        }
        let mut end = 0_u64;
        for GgufOutput { name, kind, shape, data } in all {
            let wrong = |reason| Error::Entry { name: name.clone(), reason };
            let dims = shape.len() as u64;
            if dims > MAX_DIMS {
                return Err(wrong(EntryError::Dimensions { dims }));
            }
            let wrong_shape = || wrong(EntryError::Shape { shape: shape.clone(), kind: kind.name });
            let needed = kind.nbytes(shape).ok_or_else(wrong_shape)?;
            if data.nbytes() != needed {
                return Err(wrong(EntryError::Length { found: data.nbytes(), needed }));
            }
            put_text(name.as_bytes(), &mut head);
            head.extend(u32::try_from(dims).unwrap_or(0).to_le_bytes());
            shape.iter().rev().for_each(|size| head.extend(size.to_le_bytes()));
            head.extend(kind.id.to_le_bytes());
            head.extend(end.to_le_bytes());
            let next = end.checked_add(needed).and_then(|end| end.checked_next_multiple_of(ALIGNMENT));
            end = next.ok_or_else(wrong_shape)?;
        }
        head.resize(head.len().next_multiple_of(usize::try_from(ALIGNMENT).unwrap_or(1)), 0);
        Ok(Self { len: end.saturating_add(head.len() as u64), head, tensors })
    }
}

impl<T: AsRef<[GgufOutput]>> Blob for GgufArchive<T> {
    fn len(&self) -> u64 {
        self.len
    }

    fn write_to(&self, sink: &mut dyn Sink) -> Result<(), byte_source::Error> {
        for chunk in self.head.chunks(WINDOW) {
            sink.write(Window::owned(chunk.to_vec()))?;
        }
        self.tensors.as_ref().iter().try_for_each(|GgufOutput { name, data, .. }| {
            data.gathered().write_to(sink).map_err(|error| error.in_tensor(name))?;
            let nbytes = data.nbytes();
            let padding = nbytes.next_multiple_of(ALIGNMENT).saturating_sub(nbytes);
            let padding = vec![0; usize::try_from(padding).unwrap_or(0)];
            if padding.is_empty() { Ok(()) } else { sink.write(Window::owned(padding)) }
        })
    }
}
