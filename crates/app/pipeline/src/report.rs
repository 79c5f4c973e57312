//! What a conversion reports.

use serde::Serialize;
use torch_import::Omission;

use crate::back::carton::CartonReport;
use crate::back::safetensors::SafetensorsReport;
use crate::back::torch::TorchReport;
use crate::back::triton::TritonReport;
use crate::{CastReport, Note, OutputKind, Totals};

/// What was made.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ConvertReport {
    /// Version of these members.
    pub schema_version: u32,
    /// The input as it was given; for several shards, their folder.
    pub file: String,
    /// The file or folder that was written.
    pub output: String,
    /// The kind of output.
    pub to: OutputKind,
    /// Whether it was written; not after a dry run.
    pub written: bool,
    /// Bytes of the output.
    pub nbytes: u64,
    /// The members that only this kind of output has.
    #[serde(flatten)]
    pub made: OutputReport,
    /// How many tensors it holds.
    pub tensors: usize,
    /// Sums over the tensors.
    #[serde(flatten)]
    pub totals: Totals,
    /// What became of tensors that were cast, by dtype.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub casts: Vec<CastReport>,
    /// What the files hold that is neither a tensor nor a value of the checkpoint, at most 10,000 of each file.
    pub left_out: Vec<Omission>,
    /// How many there are.
    pub left_out_count: usize,
    /// What a person should know.
    pub notes: Vec<Note>,
    /// How long it took.
    pub seconds: f64,
}

/// The members of the report that only one kind of output has.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum OutputReport {
    /// About a carton.
    Carton(CartonReport),
    /// About safetensors files.
    Safetensors(SafetensorsReport),
    /// About a checkpoint.
    Torch(TorchReport),
    /// About a model in a Triton repository.
    Triton(TritonReport),
}

impl ConvertReport {
    /// What the report about a carton has.
    pub fn carton(&self) -> Option<&CartonReport> {
        match &self.made {
            OutputReport::Carton(report) => Some(report),
            _ => None,
        }
    }
}
