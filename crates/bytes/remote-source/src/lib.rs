//! Files on web servers, on the Hugging Face Hub and in buckets as byte sources.
//!
//! [`Address`] parses `https://…`, `hf://…`, `s3://…`, `gs://…` and `az://…`, and [`RemoteFile::open`] reads the first and the last bytes of a file in
//! parallel: of most checkpoints, that is all that a listing needs. Other bytes are requested on demand; a sequential
//! reader gets them from ranges that are requested ahead, in bounded memory.
//!
#![cfg_attr(feature = "http", doc = "```no_run")]
#![cfg_attr(not(feature = "http"), doc = "```ignore")]
//! use byte_source::Source;
//! use remote_source::{Address, RemoteFile, RemoteOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let address = Address::parse("hf://openai-community/gpt2/model.safetensors")?;
//! let file = RemoteFile::open(&address, &RemoteOptions::from_env())?;
//! println!("{} bytes, {} requests", file.len(), file.traffic().requests);
//! # Ok(())
//! # }
//! ```
//!
//! An answer is used only if it is the range that was asked for, of the version of the file that was opened. A token is
//! sent to the host of the address alone. Addresses are printed without user, password and query, which may be secrets.
//!
//! Facts: RFC 9110 (ranges, validators, redirects, Retry-After), RFC 6266; the Hub's API and `huggingface_hub`'s
//! environment variables.

mod address;
#[cfg(feature = "http")]
mod answer;
#[cfg(feature = "buckets")]
mod aws_profile;
#[cfg(feature = "http")]
mod body;
#[cfg(feature = "buckets")]
mod bucket;
mod bucket_address;
#[cfg(feature = "http")]
mod cache;
#[cfg(feature = "http")]
mod client;
#[cfg(feature = "http")]
mod client_pool;
#[cfg(feature = "buckets")]
mod connector;
#[cfg(feature = "buckets")]
mod container_credentials;
#[cfg(feature = "buckets")]
mod credentials;
#[cfg(feature = "http")]
mod download;
mod error;
#[cfg(feature = "http")]
mod fetcher;
#[cfg(feature = "http")]
mod file;
#[cfg(feature = "http")]
mod folder;
#[cfg(feature = "http")]
mod guard;
#[cfg(feature = "http")]
mod hub;
mod input;
#[cfg(feature = "http")]
mod ip;
pub mod listing;
#[cfg(feature = "http")]
mod memory_gate;
mod options;
#[cfg(feature = "buckets")]
mod outputs;
#[cfg(feature = "http")]
mod planned;
#[cfg(feature = "http")]
mod proxies;
#[cfg(feature = "http")]
mod range_buffers;
#[cfg(feature = "http")]
mod read_ahead;
#[cfg(feature = "http")]
mod retry;
#[cfg(feature = "http")]
mod slot;
#[cfg(feature = "http")]
mod target;
#[cfg(feature = "buckets")]
mod temporary;
mod traffic;
#[cfg(feature = "buckets")]
mod upload;

pub use address::{Address, HubAddress, RepositoryKind};
pub use bucket_address::{BucketAddress, BucketService};
#[cfg(feature = "http")]
pub use download::{Downloader, WantedFile};
pub use error::{Error, Result};
#[cfg(feature = "http")]
pub use file::RemoteFile;
#[cfg(feature = "http")]
pub use folder::RemoteFolder;
pub use input::{Neighbours, open_files, open_input};
pub use options::RemoteOptions;
#[cfg(feature = "buckets")]
pub use outputs::BucketOutputs;
pub use traffic::Traffic;
