//! Report of a conversion, for all output formats.

use serde::Serialize;
use torch_import::Omission;

use crate::back::carton::CartonReport;
use crate::back::safetensors::SafetensorsReport;
use crate::back::torch::TorchReport;
use crate::back::triton::TritonReport;
use crate::{CastReport, Note, OutputKind, Totals};

/// Report of a conversion.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ConvertReport {
    /// Version of the report's fields.
    pub schema_version: u32,
    /// Path of the input, as given; the common folder if there are several shards.
    pub file: String,
    /// Path of the output file or folder.
    pub output: String,
    pub to: OutputKind,
    /// True if the output was written; false after a dry run.
    pub written: bool,
    /// Length of the output in bytes.
    pub nbytes: u64,
    /// Fields that only this output format has.
    #[serde(flatten)]
    pub format_report: OutputReport,
    /// Number of tensors in the output.
    pub tensors: usize,
    /// Totals over the tensors.
    #[serde(flatten)]
    pub totals: Totals,
    /// Casts of tensors, by dtype.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub casts: Vec<CastReport>,
    /// Contents of the files that are neither tensors nor values of the checkpoint, at most 10,000 per file.
    pub left_out: Vec<Omission>,
    /// Number of all omissions.
    pub left_out_count: usize,
    pub notes: Vec<Note>,
    /// Duration of the conversion in seconds.
    pub seconds: f64,
}

/// Report fields that only one output format has.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum OutputReport {
    Carton(CartonReport),
    Safetensors(SafetensorsReport),
    Torch(TorchReport),
    Triton(TritonReport),
}

impl ConvertReport {
    /// Returns the fields of a carton, if the output is one.
    pub fn carton(&self) -> Option<&CartonReport> {
        match &self.format_report {
            OutputReport::Carton(report) => Some(report),
            _ => None,
        }
    }
}
