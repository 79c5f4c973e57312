//! The numbers and names that the specification fixes.
//!
//! Facts: the Carton v1 specification; [`MODEL_PT`] is the name that the TorchScript runner of Carton's client opens.

/// The version of the specification that these types follow.
pub const SPEC_VERSION: u64 = 1;
/// Characters of a short description, at most.
pub const SHORT_DESCRIPTION_MAX: usize = 100;
/// The path of a TorchScript model in its carton.
pub const MODEL_PT: &str = "model/model.pt";
/// What a reference to a tensor starts with.
pub const TENSOR_REFERENCE: &str = "@tensor_data/";
/// What a reference to a file in `misc/` starts with.
pub const MISC_REFERENCE: &str = "@misc/";
