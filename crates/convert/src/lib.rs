//! Converts checkpoints and cartons into cartons, safetensors files, PyTorch checkpoints and models for Triton.
//!
//! A call takes a plain options struct and an [`Observer`](byte_source::Observer) for progress, notes and cancellation, and returns a
//! report that can be serialised. Nothing here prints, exits or installs a signal handler.
//!
//! ```
//! use convert::{CartonFields, CartonOptions, ConvertOptions, convert};
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
//! Data flows one way: `open` opens the input and changes its tensors by the steps of the options, a back end in `back/` lays out the
//! files of the output, and one commit writes them.

mod back;
mod conversion;
mod convert;
mod default_modules;
mod each;
mod error;
/// Parts of an input besides its tensors: code, and files that are kept.
mod input {
    pub(crate) mod from_carton;
    pub(crate) mod misc;
    pub(crate) mod script;
}
mod note;
mod note_collector;
/// Options of a conversion and of its target.
mod options {
    pub(crate) mod convert_options;
    pub(crate) mod invalid_option;
    pub(crate) mod model_options;
    pub(crate) mod output_format;
    pub(crate) mod target;
    #[cfg(feature = "cli")]
    pub(crate) mod target_args;
}
mod output_path;
mod report;
mod statement;
mod tokenizer_documents;
pub mod torch_save;
mod write;

pub use back::carton::{CartonFields, CartonOptions, CartonReport, RequiredTorch, StoredSelfTest};
pub use back::gguf::{GgufOptions, GgufReport};
pub use back::ports::PortReport;
pub use back::safetensors::{SafetensorsOptions, SafetensorsReport, Tie};
pub use back::ties::TieHandling;
pub use back::torch::{TorchOptions, TorchReport};
pub use back::triton::{TritonOptions, TritonReport};
pub use back::{ModuleOptions, NonTensorParts, Output, OutputJob, OutputPlan};
pub use batch::Resume;
pub use byte_source::{Error, Result};
pub use conversion::PlannedConversion;
pub use convert::convert;
pub use decoder::{HyperparameterKind, NoModelReason, Overrides};
pub use default_modules::default_modules;
pub use each::made_from::{InputContent, inputs_digest};
pub use each::output::BatchOutput;
pub use each::pipeline::PipelineReport;
pub use each::{BatchItem, BatchOptions, BatchReport, convert_each};
pub use error::Problem;
pub use note::Note;
pub use note_collector::NoteCollector;
pub use options::convert_options::ConvertOptions;
pub use options::invalid_option::{InvalidOption, ModelChange};
pub use options::model_options::{ArchitectureChoice, ModelOptions, architectures};
pub use options::output_format::{ForeignKind, OUTPUTS, OutputFormat, outputs, register_output};
pub use options::target::Target;
#[cfg(feature = "cli")]
pub use options::target_args::output_parser;
pub use output::{Destination, IfExists};
pub use output_path::expected_output;
pub use report::{ConvertReport, NoFields, OutputReport, TensorListing};
pub use statement::{StatementFinding, StatementOptions, StatementReport, verify_statement};
pub use torchscript::{DeclaredInput, DeclaredOutput, Dim, OnInvalidInput, ScriptOptions};
