//! Reads the header of a safetensors file, and lays out and writes such files.
//!
//! A safetensors file is the length of a JSON header in eight bytes, the header, and the tensors' bytes.
//! [`Header::read`] checks all of it against the file's length, so that every range it returns is inside the file.
//! [`SafetensorsArchive`] is a file that is laid out from tensors; it sends itself in windows.
//!
//! ```
//! use safetensors_format::Header;
//! use tensor::Dtype;
//!
//! let json = br#"{"__metadata__":{"format":"pt"},"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}"#;
//! let mut file = (json.len() as u64).to_le_bytes().to_vec();
//! file.extend(json);
//! file.extend([0; 12]);
//!
//! let header = Header::read(&file)?;
//! assert_eq!(header.metadata, [("format".to_owned(), "pt".to_owned())]);
//! let (name, view) = &header.tensors[0];
//! assert_eq!((name.as_str(), view.dtype, view.shape.as_slice()), ("w", Dtype::BFloat16, [2, 3].as_slice()));
//! assert_eq!(view.range, 8 + json.len() as u64..file.len() as u64);
//! # Ok::<(), safetensors_format::Error>(())
//! ```
//!
//! Untrusted bytes cost memory in proportion to the header, which has at most 100 MB; the tensors' bytes are not read.
//!
//! Facts: the format section of the safetensors README and `safetensors/src/tensor.rs` 0.8.

mod archive;
mod constants;
mod dtype;
mod entries;
mod error;
mod header;
mod info;
mod shards;

pub use archive::{SafetensorsArchive, is_dtype_supported};
pub use constants::{FORMAT_KEY, FORMAT_PYTORCH, MAX_HEADER, METADATA_KEY, last_part};
pub use error::{EntryError, Error, Result};
pub use header::{Header, TensorLocation, is_safetensors};
pub use shards::{
    INDEX_FILE, ModelLibrary, SINGLE_MODEL_FILE, ShardIndex, ShardTotals, is_model_file, split_into_shards,
};
