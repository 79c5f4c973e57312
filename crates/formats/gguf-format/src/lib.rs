//! Reads the header of a GGUF file, and lays out and writes such files.
//!
//! A GGUF file is a list of keys with values, a list of tensors, and the tensors' bytes, in either byte order. [`GgufHeader::read`] checks
//! all of it against the file's length, so that every range it returns is inside the file. [`GgufArchive`] is a file that is laid out from
//! tensors; it sends itself in windows. Types of blocks are known by their sizes; `quantization` computes their numbers.
//!
//! ```
//! use byte_source::{Blob, BufferSource};
//! use gguf_format::{GgmlType, GgufArchive, GgufHeader, GgufOutput, GgufValue};
//! use tensor::{Dtype, Storage, Tensor};
//!
//! let blocks = Tensor::new(Dtype::UInt8, vec![2, 34], vec![34, 1], 0, Storage::owned(vec![1; 68]))?;
//! let kind = GgmlType::from_name("Q8_0").expect("it is known");
//! let tensors = [GgufOutput { name: "w".to_owned(), kind, shape: vec![2, 32], data: blocks }];
//! let entries = [("general.architecture".to_owned(), GgufValue::Text("llama".into()))];
//! let mut file: Vec<u8> = Vec::new();
//! GgufArchive::new(&entries, &tensors)?.write_to(&mut file)?;
//!
//! let header = GgufHeader::read(&BufferSource::new("w.gguf", file))?;
//! assert_eq!(header.entries, entries);
//! assert_eq!((header.tensors[0].kind.name, header.tensors[0].shape.as_slice()), ("Q8_0", [2, 32].as_slice()));
//! # Ok::<(), byte_source::Error>(())
//! ```
//!
//! Untrusted bytes cost memory in proportion to the header, which has at most 64 MiB; the tensors' bytes are not read, and the elements of
//! arrays not copied.

mod archive;
mod cursor;
mod error;
mod ggml_type;
mod header;
mod value;

pub use archive::{GgufArchive, GgufOutput};
pub use error::{EntryError, Error, Result};
pub use ggml_type::GgmlType;
pub use header::{ALIGNMENT, ALIGNMENT_KEY, GgufHeader, GgufTensor, MAX_DIMS, MAX_HEADER, is_gguf};
pub use value::{GgufArray, GgufValue, ValueType};
