//! Tensors that consist of several (quantized, sparse, nested), and tensors without data.

use std::borrow::Cow;

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
    pub parts: Vec<(Cow<'static, str>, Tensor)>,
}

/// What a [`Compound`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// A subclass of Tensor that keeps its data in its attributes. Its parts are the attributes that are tensors, by their
    /// names; those of attributes that have parts themselves are joined with dots.
    Subclass {
        /// Its class, with its module.
        class: String,
        /// What it is a shard of, where it is one: `a shard of [4096, 4096], rank 0 of 8`.
        shard: Option<String>,
        /// The other attributes, and what Python would print of each, abbreviated.
        attributes: Vec<(String, String)>,
    },
    /// No data: on the meta device, or of a class that keeps its data elsewhere.
    Meta {
        /// Why there are none, with its article, such as `a tensor on the meta device`.
        what: String,
    },
}
