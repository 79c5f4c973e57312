//! Kinds of compound tensors (quantized, sparse, nested, subclasses) and of tensors without data.

/// Kind of a [`CompoundTensor`](crate::CompoundTensor).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompoundKind {
    /// Integers with a scale and a zero point: parts `int_repr`, `scale` and `zero_point`.
    Quantized {
        /// PyTorch's name of the scheme, such as `per_tensor_affine`.
        scheme: String,
        /// Dimension that scales and zero points run along, if they are per channel.
        axis: Option<u64>,
    },
    /// Blocks of codes with their scales, as GGUF has them: part `blocks`, the bytes of each row.
    Blocks {
        /// Name of the type of the blocks, such as `Q4_K`.
        scheme: String,
    },
    /// Indices and values of the elements that are stored.
    Sparse {
        /// PyTorch's name of the layout, such as `sparse_coo`.
        layout: String,
    },
    /// Tensors of several shapes in one buffer: parts `values`, `sizes`, `strides` and `offsets`.
    Nested,
    /// Tensors that differ in one dimension, in one buffer: parts `values` and `offsets`, and `lengths` if the buffer
    /// has gaps between the tensors.
    Jagged,
    /// Subclass of `torch.Tensor` that keeps its data in its attributes. Its parts are the tensor attributes, by their
    /// names; the names of nested parts are joined with dots.
    Subclass {
        /// Name of the class, with its module.
        class: String,
        /// Shard that the tensor holds, if it is sharded: `a shard of [4096, 4096], rank 0 of 8`.
        shard: Option<String>,
        /// Names of the other attributes, each with its value as Python would print it, abbreviated.
        attributes: Vec<(String, String)>,
    },
    /// No data: on the meta device, or of a class that keeps its data elsewhere.
    Meta {
        /// Reason, with its article, such as `a tensor on the meta device`.
        what: String,
    },
}
