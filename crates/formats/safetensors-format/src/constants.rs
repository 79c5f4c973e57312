//! Constants of the header format, and the parts of names.
//!
//! Facts: `MAX_HEADER_SIZE` and `HashMetadata` in `safetensors/src/tensor.rs` of the official crate.

/// Maximum length of the header in bytes.
pub const MAX_HEADER: u64 = 100_000_000;
/// Key of the metadata in the header, whose value is not a tensor.
pub const METADATA_KEY: &str = "__metadata__";
/// Key of the metadata that names the framework of the tensors. `transformers` rejects files without it.
pub const FORMAT_KEY: &str = "format";
/// Value of [`FORMAT_KEY`] for tensors of PyTorch.
pub const FORMAT_PYTORCH: &str = "pt";

/// Returns the part of a name after its last dot. Two names of one tensor in the metadata have the same.
pub fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}
