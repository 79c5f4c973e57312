//! Report of a comparison.

use open::Note;
use serde::Serialize;
use serde_json::Value as Json;

use crate::compare::numbers::ElementChange;
use crate::compare::rearrangement::Rearrangement;

/// Differences of two checkpoints or cartons.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct DiffReport {
    /// Version of the report's fields.
    pub schema_version: u32,
    pub a: ComparedInput,
    pub b: ComparedInput,
    /// True if there is no difference.
    pub same: bool,
    pub counts: DiffCounts,
    /// Tensors that differ, those that changed most first.
    pub tensors: Vec<TensorChange>,
    /// Values that differ, sorted by path.
    pub values: Vec<ValueDifference>,
    /// Number of tensors and values that differ and are not listed.
    pub unlisted: usize,
    pub notes: Vec<Note>,
}

/// One of the two inputs.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ComparedInput {
    /// Path of the input, as given.
    pub file: String,
    /// Name of the format.
    pub format: &'static str,
    /// Number of tensors compared.
    pub tensors: usize,
    /// Total length of the files in bytes.
    pub nbytes: u64,
}

/// Numbers of tensors and values by their change. A tensor with several changes counts once for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DiffCounts {
    /// Tensors with the same name, dtype, shape and bits.
    pub same: usize,
    /// Tensors whose elements differ by no more than the tolerance.
    pub within_tolerance: usize,
    pub only_in_a: usize,
    pub only_in_b: usize,
    pub changed: usize,
    pub shape: usize,
    pub structure: usize,
    pub permuted: usize,
    pub transposed: usize,
    pub reshaped: usize,
    pub dtype: usize,
    pub renamed: usize,
    /// Values that differ.
    pub values: usize,
    /// Values that are the same as far as they were read, but are too large to be compared as a whole.
    pub values_cut: usize,
}

/// Kind of a difference, the most important one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Change {
    OnlyInA,
    OnlyInB,
    /// The elements differ.
    Changed,
    /// The shapes differ, and the elements are not the same.
    Shape,
    /// The kind, the dtype or the shape of a quantized, sparse or nested tensor differs, which its parts do not show.
    Structure,
    /// The same elements, along a dimension or as a whole in another order.
    Permuted,
    /// The same elements with the dimensions in another order.
    Transposed,
    /// The same elements in the same order with another shape.
    Reshaped,
    /// Another dtype. Without `Changed`, one tensor is the other one cast to its dtype.
    Dtype,
    /// The same elements under another name.
    Renamed,
}

impl Change {
    /// Returns the name of the change in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::OnlyInA => "only_in_a",
            Self::OnlyInB => "only_in_b",
            Self::Changed => "changed",
            Self::Shape => "shape",
            Self::Structure => "structure",
            Self::Permuted => "permuted",
            Self::Transposed => "transposed",
            Self::Reshaped => "reshaped",
            Self::Dtype => "dtype",
            Self::Renamed => "renamed",
        }
    }
}

/// Tensor that differs.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TensorChange {
    /// Kinds of the difference, the most important one first.
    pub changes: Vec<Change>,
    /// Tensor of the first input; `None` if it has none.
    pub a: Option<TensorSummary>,
    pub b: Option<TensorSummary>,
    /// How much the elements differ, if they were compared as numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elements: Option<ElementChange>,
    /// Arrangement of the elements, if they are in another order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rearrangement: Option<Rearrangement>,
}

impl TensorChange {
    /// Returns the name in the first input, or in the second one if the first has no such tensor.
    pub fn name(&self) -> &str {
        self.a.as_ref().or(self.b.as_ref()).map_or("", |tensor| tensor.name.as_str())
    }

    /// Returns the size of the change, by which tensors with equal kinds of changes are sorted.
    pub(crate) fn relative_norm(&self) -> f64 {
        self.elements.as_ref().map_or(0.0, |elements| {
            if elements.not_finite > 0 { f64::INFINITY } else { elements.relative_norm }
        })
    }
}

/// Name, dtype and shape of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TensorSummary {
    pub name: String,
    /// PyTorch's name of the dtype.
    pub dtype: &'static str,
    /// Shape in elements.
    pub shape: Vec<u64>,
    /// Kind of a quantized, sparse or nested tensor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// Value that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ValueDifference {
    /// Path of the value in the checkpoint.
    pub path: String,
    /// `Changed`, `OnlyInA` or `OnlyInB`.
    pub change: Change,
    /// Value of the first input; `None` if it has none.
    pub a: Option<Json>,
    pub b: Option<Json>,
}
