//! Compound tensors: quantized, sparse and nested tensors, which consist of several strided ones, and tensors without
//! data.

use std::borrow::Cow;

use tensor::{CompoundKind, Dtype, Tensor};

use crate::shard_position::ShardPosition;

/// A tensor that is not a single strided view.
#[derive(Clone, Debug)]
pub struct CompoundItem {
    /// Kind of the compound, which determines its parts.
    pub kind: CompoundKind,
    /// Element type that PyTorch reports.
    pub dtype: Dtype,
    /// Shape in elements; for a nested tensor, the shape of its buffer.
    pub shape: Vec<u64>,
    /// Strided tensors of which the compound consists, with their names; empty for a tensor without data.
    pub parts: Vec<(Cow<'static, str>, Tensor)>,
    /// Position in the whole of the parts, for one rank's shard of a distributed tensor.
    pub shard: Option<Box<ShardPosition>>,
}
