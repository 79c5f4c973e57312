//! Report of a conversion, for all output formats.

use open::{AdapterReport, CastReport, DequantizedReport, SumReport, Totals};
use output::WrittenFile;
use serde::Serialize;
use tensor::Tensors;
use torch_import::Omission;

use crate::Note;
use crate::back::carton::CartonReport;
use crate::back::safetensors::SafetensorsReport;
use crate::back::torch::TorchReport;
use crate::back::triton::TritonReport;

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
    /// Name of the output format.
    pub to: &'static str,
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
    /// Checkpoints that were summed with the input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum: Option<SumReport>,
    /// Adapters that were merged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub adapters: Vec<AdapterReport>,
    /// Quantized tensors whose numbers are computed, by scheme.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dequantized: Vec<DequantizedReport>,
    /// Casts of tensors, by dtype.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub casts: Vec<CastReport>,
    /// Digest of the tensors of the output, in hexadecimal, if the options ask for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Tensors of the output, after a dry run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listing: Vec<TensorListing>,
    /// Contents of the files that are neither tensors nor values of the checkpoint, at most 10,000 per file.
    pub left_out: Vec<Omission>,
    /// Number of all omissions.
    pub left_out_count: usize,
    pub notes: Vec<Note>,
    /// Duration of the conversion in seconds.
    pub seconds: f64,
    /// Files of the output; none after a dry run.
    #[serde(skip)]
    pub(crate) written_files: Vec<WrittenFile>,
}

/// Tensor that a conversion would write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TensorListing {
    /// Name in the checkpoint; `None` for a tensor that the conversion generates.
    pub from: Option<String>,
    /// Name in the output.
    pub name: String,
    /// Dtype in the output.
    pub dtype: String,
    /// Shape in elements.
    pub shape: Vec<u64>,
}

impl TensorListing {
    /// Lists the tensors, with their names in the checkpoint in the same order.
    pub(crate) fn new(tensors: &Tensors, origins: Vec<Option<String>>) -> Vec<Self> {
        let origins = origins.into_iter().chain(std::iter::repeat(None));
        let listed = tensors.iter().zip(origins).map(|((name, tensor), from)| Self {
            from,
            name: name.clone(),
            dtype: tensor.dtype().to_string(),
            shape: tensor.shape().to_vec(),
        });
        listed.collect()
    }
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
    /// Format of another crate, which has no fields of its own.
    Other,
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
