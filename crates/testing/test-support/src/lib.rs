//! Helpers that the tests of several crates share: archives and tensors in memory, a source that counts its reads, and cases
//! that run in a process of their own. [`tiny_llama`] writes the checkpoint of the README.
//!
//! ```
//! use byte_source::Source;
//! use test_support::RemoteSource;
//!
//! let source = RemoteSource::new("object.bin", vec![1, 2, 3]);
//! assert_eq!(source.read_range(1..3)?[..], [2, 3]);
//! assert_eq!(source.take_ranges(), [1..3]);
//! # Ok::<(), byte_source::Error>(())
//! ```

mod archive;
mod null_sink;
mod process;
mod remote;
mod safetensors;
mod store_suite;
mod tensors;
pub mod tiny_llama;

pub use archive::stored_zip;
pub use null_sink::NullSink;
pub use process::{each_in_own_process, peak_memory};
pub use remote::RemoteSource;
pub use safetensors::safetensors;
pub use store_suite::{STORE_FILES, StoreClaims, check_store};
pub use tensors::{tensor, zeros};
