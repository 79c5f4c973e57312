//! Kinds of compound tensors (quantized, sparse, nested, subclasses) and of tensors without data.

/// Kind of a [`Compound`](crate::Compound) tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
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
        /// The shard that it holds, if it is one: `a shard of [4096, 4096], rank 0 of 8`.
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
