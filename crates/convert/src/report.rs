//! Report of a conversion, for all output formats.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use open::{AdapterReport, CastReport, DequantizedReport, SumReport, Totals};
use output::WrittenFile;
use serde::{Serialize, Serializer};
use tensor::Tensors;
use torch_import::Omission;

use crate::{Note, PortReport};

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
    #[serde(flatten, serialize_with = "serialize_fields")]
    pub format_report: Arc<dyn OutputReport>,
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
    /// Path of the statement, if one was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statement: Option<String>,
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

/// Report fields that only one output format has. They are members of the whole report's JSON.
pub trait OutputReport: Any + erased_serde::Serialize + fmt::Debug + Send + Sync {
    /// Returns what runs the model, with its inputs and outputs, for a summary.
    fn module(&self) -> Option<String> {
        None
    }

    /// Returns further lines of a summary: a label, and what it has.
    fn summary(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

fn serialize_fields<S: Serializer>(report: &Arc<dyn OutputReport>, serializer: S) -> Result<S::Ok, S::Error> {
    erased_serde::serialize(&**report, serializer)
}

/// Report of a format that has no fields of its own.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct NoFields {}

impl OutputReport for NoFields {}

/// Returns the line of a summary with the names of the files if there are several, or if they are in an output folder.
pub(crate) fn file_names_line(files: &[String], in_folder: bool) -> Option<(&'static str, String)> {
    (files.len() > 1 || in_folder).then(|| ("files", files.join(", ")))
}

/// Describes a module: by its signature in Python, else by its inputs and outputs.
pub(crate) fn module_line(
    module: &str,
    signature: Option<&str>,
    inputs: &[PortReport],
    outputs: &[PortReport],
) -> String {
    match (signature, inputs) {
        (Some(forward), _) => format!("{module}: forward{forward}"),
        (None, []) => format!("{module}: returns {}", port_names(outputs)),
        (None, inputs) => format!("{module}: {} -> {}", port_names(inputs), port_names(outputs)),
    }
}

/// Returns the names of the required ports if there are at most four, else their number.
fn port_names(ports: &[PortReport]) -> String {
    let names = ports.iter().filter(|port| !port.optional).map(|port| port.name.as_str());
    match names.collect::<Vec<_>>() {
        many if many.len() > 4 => format!("{} tensors", many.len()),
        few => few.join(", "),
    }
}

impl ConvertReport {
    /// Returns the fields of the output format, if they are of this type.
    pub fn of_format<R: OutputReport>(&self) -> Option<&R> {
        (&*self.format_report as &dyn Any).downcast_ref()
    }
}
