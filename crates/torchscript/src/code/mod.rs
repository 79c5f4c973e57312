//! Modules that know what their tensors are for: one file an architecture.

pub(crate) mod llama;
pub(crate) mod weights;
