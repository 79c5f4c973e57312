//! Tensors that consist of several (quantized, sparse, nested), and tensors without data.

use std::borrow::Cow;

use tensor::{CompoundKind, Dtype, Tensor};

/// A tensor that is not a single strided view.
#[derive(Clone, Debug)]
pub struct Compound {
    /// What it is.
    pub kind: CompoundKind,
    /// The type of its elements, as PyTorch has it.
    pub dtype: Dtype,
    /// Its shape, in elements; for a nested tensor, the shape of its buffer.
    pub shape: Vec<u64>,
    /// The tensors that it consists of, and their names; empty for a tensor without data.
    pub parts: Vec<(Cow<'static, str>, Tensor)>,
}
