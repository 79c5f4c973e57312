//! Position of one rank's shard in a distributed tensor.
//!
//! Facts: `torch/distributed/tensor/placement_types.py` and `torch/distributed/_shard/metadata.py` of PyTorch 2.15.

/// Position in a distributed tensor of one rank's shard.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardPosition {
    /// The shard of a `DTensor`, which is the part `_local_tensor`: one entry for each dimension of the mesh.
    Mesh(Vec<MeshDimension>),
    /// The shards of a `ShardedTensor`, which are the parts `_local_shards.NUMBER`.
    Boxes {
        /// The start and the sizes of each, in elements.
        boxes: Vec<(Vec<u64>, Vec<u64>)>,
        /// Number of ranks that have shards, if the state names the rank of each.
        ranks: Option<u64>,
    },
}

/// A dimension of a mesh of ranks, and what it does to a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MeshDimension {
    /// Number of ranks along the dimension.
    pub ranks: u64,
    /// Index of this rank along the dimension.
    pub index: u64,
    pub placement: Placement,
}

/// Distribution of a tensor over the ranks of one dimension of a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// Each rank has all.
    Replicate,
    /// Each rank has a chunk along `dim`.
    Shard { dim: u64 },
    /// Each rank has a chunk of each of `pieces` pieces along `dim`.
    StridedShard { dim: u64, pieces: u64 },
    /// The ranks have addends of a sum.
    Partial,
}
