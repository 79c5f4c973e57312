//! Tensors that consist of several (quantized, sparse, nested), and tensors without data.

use tensor::{Dtype, Tensor};

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
    pub parts: Vec<(&'static str, Tensor)>,
}

/// What a [`Compound`] is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CompoundKind {
    /// Integers with a scale and a zero point: parts `int_repr`, `scale` and `zero_point`.
    Quantized {
        /// PyTorch's name of the scheme, such as `per_tensor_affine`.
        scheme: String,
        /// The dimension that scales and zero points run along, per channel.
        axis: Option<u64>,
    },
    /// Indices and values.
    Sparse {
        /// PyTorch's name of the layout, such as `sparse_coo`.
        layout: String,
    },
    /// Tensors of several shapes in one buffer: parts `values`, `sizes`, `strides` and `offsets`.
    Nested,
    /// Tensors that differ in one dimension, in one buffer: parts `values` and `offsets`, and `lengths` where
    /// they have holes between them.
    Jagged,
    /// No data: on the meta device, or of a class that keeps its data elsewhere.
    Meta {
        /// Why there are none, with its article, such as `a tensor on the meta device`.
        what: String,
    },
}
