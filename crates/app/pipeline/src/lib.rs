//! Inspects, scans, traces and converts PyTorch checkpoints, without Python and without executing anything from them.
//!
//! Each call takes a plain options struct and an [`Observer`] for progress, notes and cancellation, and returns a report
//! that can be serialised. Nothing here prints, exits or installs a signal handler.
//!
//! ```
//! use pipeline::{CartonOptions, ConvertOptions, Fields, convert};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("model.safetensors");
//! # let header = br#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
//! # std::fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header, &[7]].concat())?;
//! let mut options = ConvertOptions::new(&path);
//! options.target = CartonOptions::default().fields(Fields::default().license("MIT")).into();
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

mod back;
mod cast;
mod conversion;
mod convert;
mod dtypes;
mod each;
mod error;
mod error_text;
mod from_carton;
mod input;
mod inspect;
mod invalid_option;
mod kind;
mod misc;
mod model;
mod names;
mod naming;
mod note;
mod notes;
mod options;
mod rename;
mod report;
mod scan;
mod script;
mod select;
mod target;
mod trace;
mod values;
mod write;

pub use back::carton::{CartonOptions, CartonReport, Fields, SelfTestReport, Torch, write_carton};
pub use back::ports::PortReport;
pub use back::safetensors::{SafetensorsOptions, SafetensorsReport, Tie};
pub use back::ties::Ties;
pub use back::torch::{TorchOptions, TorchReport};
pub use back::triton::{TritonOptions, TritonReport};
pub use byte_source::{Action, ErrorKind, Notice, Observer, Step};
pub use cast::CastReport;
pub use checkpoint_files::Shards;
pub use conversion::Conversion;
pub use convert::convert;
pub use decoder::{Fact, Given, WhyWeights};
pub use dtypes::{Cast, CastFrom};
pub use each::{BatchItem, EachReport, convert_each};
pub use error::{Error, Result};
pub use error_text::problems;
pub use inspect::{InspectOptions, InspectReport, RowView, TensorHash, TensorRow, Totals, inspect};
pub use invalid_option::{Change, InvalidOption};
pub use kind::{ForeignKind, OutputKind};
pub use model::{Architecture, ModelOptions, architectures, usual_modules};
pub use names::Names;
pub use note::{Note, count, counted, size};
pub use options::{AllowedGlobals, ConvertOptions};
pub use output::IfExists;
pub use pickle_vm::trace::View;
pub use rename::Rename;
pub use report::{ConvertReport, OutputReport};
pub use scan::{FileScan, Outcome, ScanOptions, ScanSummary, Verdict, globals_of_risk, not_followed, scan};
pub use script::usual_scripts;
pub use select::{Selected, Selection, select};
pub use target::Target;
pub use tensor::{Dtype, Tensor};
pub use torch_import::{Omission, Omitted, Risk, Scan as ScannedFile, Use};
pub use torchscript::{Declared, Dim, Errors, ScriptOptions};
pub use trace::{Listing, TraceOptions, trace};
pub use values::{ValueRow, ValueRows};
