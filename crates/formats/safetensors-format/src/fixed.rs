//! What the format fixes about the header.
//!
//! Facts: `MAX_HEADER_SIZE` and `HashMetadata` in `safetensors/src/tensor.rs` of the official crate.

/// The longest header, in bytes, that the format allows.
pub const MAX_HEADER: u64 = 100_000_000;
/// The header's key whose value is not a tensor.
pub const METADATA: &str = "__metadata__";
