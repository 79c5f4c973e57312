//! Back ends: each writes the selected tensors in one output format.

pub(crate) mod carton;
pub(crate) mod carton_fields;
