//! Inspects, scans, traces and converts PyTorch checkpoints, without Python and without executing anything from them.
//!
//! Each call takes a plain options struct and an [`Observer`] for progress, notes and cancellation, and returns a report
//! that can be serialised. Nothing here prints, exits or installs a signal handler.
//!
//! ```
//! use pipeline::{CartonOptions, ConvertOptions, CartonFields, convert};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("model.safetensors");
//! # let header = br#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
//! # std::fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header, &[7]].concat())?;
//! let mut options = ConvertOptions::new(&path);
//! options.target = CartonOptions::default().fields(CartonFields::default().license("MIT")).into();
//! let report = convert(&options, &())?;
//! for note in &report.notes {
//!     println!("note: {note}");
//! }
//! println!("{}: {} tensors, {} bytes", report.output, report.tensors, report.nbytes);
//! # assert_eq!(report.tensors, 1);
//! # Ok(())
//! # }
//! ```
//!
//! Data flows one way: `checkpoint-files` finds the files of a checkpoint, `torch-import` reads them, [`Selection`] chooses
//! tensors and names, a back end in `back/` lays out the files of the output, and one commit writes them.

mod adapter_overview;
mod array_text;
mod back;
mod batch;
mod batch_inputs;
mod batch_records;
mod carton_checkpoint;
mod cast;
mod cast_options;
mod checkpoint_sum;
mod conversion;
mod convert;
mod convert_options;
mod custom_code;
mod decoded_values;
mod dequantize;
mod digest;
mod error;
mod error_conversions;
mod error_text;
mod float_text;
mod from_carton;
mod global_check;
mod inspect;
mod inspect_hashes;
mod inspect_named;
mod inspect_quantized;
mod inspect_rows;
mod inspect_totals;
mod invalid_option;
mod job_queue;
mod made_from;
mod merge;
mod misc;
mod model;
mod module_tree;
mod note;
mod note_collector;
mod npy;
mod open_carton;
mod opened;
mod option_json;
mod output_kind;
mod output_path;
mod own_tensors;
#[doc(hidden)]
pub mod path_json;
mod rename;
mod report;
mod resume;
mod row_statistics;
mod scan;
mod scan_json;
mod script;
mod select;
mod size_text;
mod step;
mod target;
#[cfg(feature = "cli")]
mod target_args;
mod target_layout;
mod trace;
mod translated_base;
mod values;
mod weight_keys;
mod write;

pub use adapter::{AdapterReport, MergeKind, MergedTensor, SumReport, SummedFile};
pub use adapter_overview::AdapterOverview;
pub use array_text::{ArrayError, array_text};
pub use back::carton::{
    CartonFields, CartonOptions, CartonReport, RequiredTorch, StoredSelfTest, write_carton,
};
pub use back::ports::PortReport;
pub use back::safetensors::{SafetensorsOptions, SafetensorsReport, Tie};
pub use back::ties::TieHandling;
pub use back::torch::{TorchOptions, TorchReport};
pub use back::triton::{TritonOptions, TritonReport};
pub use back::{NonTensorParts, Output, OutputJob, OutputPlan};
pub use batch::{BatchItem, BatchOptions, BatchReport, convert_each};
pub use byte_source::{
    Action, ErrorKind, Notice, Observer, ProgressUpdate, format_bytes, format_count, format_things,
};
pub use cast::{CastReport, Casts};
pub use cast_options::{Cast, CastFrom, CastOptions};
pub use checkpoint_files::ShardPolicy;
pub use checkpoint_sum::{CheckpointSum, Sum};
pub use conversion::PlannedConversion;
pub use convert::convert;
pub use convert_options::{AllowedGlobals, ConvertOptions, DEFAULT_MAX_EXPANSION};
pub use custom_code::CustomClass;
pub use decoder::{HyperparameterKind, NoModelReason, Overrides};
pub use dequantize::{Dequantize, DequantizedReport};
pub use digest::{TensorContent, TensorsDigest, digest_tensors};
pub use error::{Error, Result};
pub use inspect::{InspectOptions, InspectReport, TensorSort, inspect, inspect_tensors};
pub use inspect_named::{NamedContent, NamedItem, find_named};
pub use inspect_quantized::RowQuantization;
pub use inspect_rows::{RowView, TensorHash, TensorRow};
pub use inspect_totals::Totals;
pub use invalid_option::{InvalidOption, ModelChange};
pub use job_queue::run_jobs;
pub use made_from::{InputContent, inputs_digest};
pub use merge::{Merge, WeightedPath};
pub use model::{ArchitectureChoice, ModelOptions, architectures, default_modules};
pub use module_tree::{TreeRow, module_tree};
pub use note::Note;
pub use note_collector::NoteCollector;
pub use npy::NpyFile;
pub use open_carton::{
    CartonInput, find_carton, is_carton, is_carton_file, lists_carton_documents, open_model, read_model,
};
pub use opened::{Model, OpenCarton, OpenOptions};
pub use option_json::{add_options, changed_options, set_options};
pub use output::{Destination, IfExists};
pub use output_kind::{ForeignKind, OutputKind};
pub use output_path::expected_output;
pub use own_tensors::own_tensors;
pub use pickle_vm::trace::TraceView;
pub use rename::Rename;
pub use report::{ConvertReport, OutputReport, TensorListing};
pub use resume::{BatchOutput, ExistingOutput, Resume};
pub use row_statistics::RowStatistics;
pub use scan::{
    CUSTOM_CODE_NOTE, FileScan, ScanOptions, ScanOutcome, ScanSummary, Verdict, globals_of_risk,
    linked_folder_note, scan,
};
pub use script::default_scripts;
pub use select::Selection;
pub use size_text::parse_size;
pub use step::{Context, Step, StepReport};
pub use target::{OtherOutput, Target};
pub use target_layout::{TargetLayout, Translate};
pub use tensor::{Dtype, ElementValue, Histogram, Tensor, TensorStatistics};
pub use torch_import::{
    GlobalUse, GlobalUseKind, GlobalUseKinds, Omission, OmittedCounts, Risk, Scan as ScannedFile, ScanDepth,
};
pub use torchscript::{DeclaredInput, DeclaredOutput, Dim, OnInvalidInput, ScriptOptions};
pub use trace::{TraceListing, TraceOptions, open_pickles, trace};
pub use values::{ValueRow, ValueRows};
pub use write::allowed_nbytes;
