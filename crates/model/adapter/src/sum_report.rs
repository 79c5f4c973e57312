//! Report of a sum of checkpoints.

use serde::Serialize;

/// What was summed with a base.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SumReport {
    /// True if tensors that differ in name, shape or dtype were accepted.
    pub only_common: bool,
    /// Files in the order in which they were given.
    pub files: Vec<SummedFile>,
    /// Single numbers of a dtype without sums that differ, and are those of the base.
    pub kept: Vec<String>,
}

/// File that was summed with a base.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SummedFile {
    /// Path of the file, as given.
    pub file: String,
    /// Weight of its difference from the base; `None` in a mean.
    pub weight: Option<f64>,
    /// Number of tensors that were summed.
    pub tensors: usize,
    /// Tensors that are only in this file or only in the base, or whose shapes or kinds of numbers differ.
    pub left_out: Vec<String>,
}

impl SummedFile {
    pub(crate) fn new(file: String, weight: Option<f64>) -> Self {
        Self { file, weight, tensors: 0, left_out: Vec::new() }
    }
}
