//! Numbers and names that the specification fixes.
//!
//! Facts: the Carton v1 specification; [`MODEL_PT`] is the name that the TorchScript runner of Carton's client opens.

/// Version of the Carton specification that these types follow.
pub const SPEC_VERSION: u64 = 1;
/// Maximum number of characters of a short description.
pub const SHORT_DESCRIPTION_MAX: usize = 100;
/// Path of a TorchScript model in its carton.
pub const MODEL_PT: &str = "model/model.pt";
/// Prefix of a reference to a tensor.
pub const TENSOR_REFERENCE: &str = "@tensor_data/";
/// Prefix of a reference to a file in `misc/`.
pub const MISC_REFERENCE: &str = "@misc/";
