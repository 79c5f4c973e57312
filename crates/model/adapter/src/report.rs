//! Report of a merge.

use serde::Serialize;

/// What an adapter changed.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct AdapterReport {
    /// Path of the adapter, as given.
    pub adapter: String,
    /// Factor that was given for the whole adapter.
    pub weight: f64,
    /// Number of tensors in the adapter; all of them were used.
    pub adapter_tensors: usize,
    /// Changed tensors, in the order of the base.
    pub merged: Vec<MergedTensor>,
}

/// A tensor of the base that an adapter changed.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct MergedTensor {
    /// Name in the base.
    pub name: String,
    #[serde(flatten)]
    pub kind: MergeKind,
    /// Frobenius norm of the change before it is rounded; `None` for replaced numbers, and for a dry run of `DoRA`.
    pub norm: Option<f64>,
    /// Position in the base.
    #[serde(skip)]
    pub(crate) position: usize,
}

impl MergedTensor {
    pub(crate) fn new(name: String, kind: MergeKind, norm: Option<f64>) -> Self {
        Self { name, kind, norm, position: usize::MAX }
    }
}

/// How a tensor was changed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum MergeKind {
    /// A product of low rank was added.
    LowRank {
        rank: u64,
        /// Factor of the product, that for the whole adapter included.
        scale: f64,
    },
    /// A product of low rank was added, and the vectors of the weight were rescaled.
    Dora { rank: u64, scale: f64 },
    /// A bias was added.
    Bias { scale: f64 },
    /// The whole tensor was replaced.
    Replaced,
    /// The base has no such tensor: it was added.
    Added,
    /// Rows of an embedding were replaced.
    Rows { rows: usize },
}
