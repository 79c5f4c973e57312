//! Reasons for which a quantized model cannot be recognised.

use byte_source::details;
use tensor::Dtype;

/// Reasons for which the numbers of a quantized model cannot be computed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A document is not JSON, or a member has another type than expected.
    #[error("{file}: {problem}")]
    Document { file: &'static str, problem: String },
    /// The configuration names a method that this crate does not know.
    #[error("the weights are quantized with `{}`, which is not known; the known methods are {known}", method.escape_debug())]
    UnknownMethod { method: String, known: String },
    /// The configuration names a method whose numbers this crate does not compute.
    #[error("the weights are quantized with `{method}`, whose numbers are not computed: {reason}")]
    NotComputed { method: String, reason: &'static str },
    /// The configuration has a value for which no arithmetic is known.
    #[error("{method}: `{key}` is {found}, expected {expected}")]
    Unsupported { method: String, key: String, found: String, expected: String },
    /// Neither the configuration nor a tensor says that the weights are quantized.
    #[error("its weights are not quantized")]
    NotQuantized,
    /// A tensor has the companion of codes, and no document or tensor says with which method.
    #[error(
        "`{}` gives tensor `{}` another meaning, but neither a document nor the names say how its weights are quantized",
        companion.escape_debug(), tensor.escape_debug()
    )]
    UnknownCodes { tensor: String, companion: String },
    /// The configuration says that the weights are quantized, and none is.
    #[error(
        "its configuration says that the weights are quantized with {method}, and none of the tensors is"
    )]
    NothingQuantized { method: String },
    /// A quantized tensor lacks a companion, such as its scales.
    #[error("tensor `{}` is quantized with {method}, and `{}` is missing", tensor.escape_debug(), companion.escape_debug())]
    MissingCompanion { method: String, tensor: String, companion: String },
    /// A tensor of scales, zero points, indices or maxima belongs to no quantized tensor.
    #[error("tensor `{}` belongs to no tensor that is quantized with {method}", tensor.escape_debug())]
    UnusedCompanion { method: String, tensor: String },
    /// The shape of a tensor does not fit its companions or the configuration.
    #[error("tensor `{}` has the shape {found:?}, expected {expected}", tensor.escape_debug())]
    Shape { tensor: String, found: Vec<u64>, expected: String },
    /// The dtype of a tensor is not one of the method's.
    #[error("tensor `{}` is {found}, expected {expected}", tensor.escape_debug())]
    Dtype { tensor: String, found: Dtype, expected: String },
    /// The content of a small tensor, such as a shape or a table, is wrong.
    #[error("tensor `{}`: {problem}", tensor.escape_debug())]
    Content { tensor: String, problem: String },
    /// Two tensors of the result would have the same name.
    #[error("two tensors would be called `{}`", name.escape_debug())]
    SameName { name: String },
}

details! {
    Problem {
        Option: NotQuantized;
        Unsupported: UnknownMethod, NotComputed, Unsupported, UnknownCodes;
        Input: Document, NothingQuantized, MissingCompanion, UnusedCompanion, Shape, Dtype, Content, SameName;
    }
}
