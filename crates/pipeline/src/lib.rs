//! Inspects, scans, traces and converts PyTorch checkpoints, without Python and without executing anything from them.
//!
//! Each call takes a plain options struct and an [`Observer`] for progress, notes and cancellation, and returns a report
//! that can be serialised. Nothing here prints, exits or installs a signal handler.
//!
//! ```
//! use pipeline::{ConvertOptions, convert};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("model.safetensors");
//! # let header = br#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
//! # std::fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header, &[7]].concat())?;
//! let mut options = ConvertOptions::new(&path);
//! options.fields.license = Some("MIT".to_owned());
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
//! Data flows one way: `sources` finds the files of a checkpoint, `torch-import` reads them, [`Selection`] chooses
//! tensors and names, `torchscript` makes a module of them, and a back end in `back/` writes it.

mod back;
mod cast;
mod convert;
mod destination;
mod dtypes;
mod each;
mod error;
mod from_carton;
mod input;
mod inspect;
mod invalid_option;
mod model;
mod names;
mod naming;
mod note;
mod observer;
mod options;
mod output;
mod rename;
mod report;
mod scan;
mod script;
mod select;
mod trace;
mod values;
mod write;

pub use back::carton::{CartonReport, PortReport, write_carton};
pub use back::safetensors::{SafetensorsReport, Tie};
pub use back::self_test::SelfTestReport;
pub use back::ties::Ties;
pub use back::torch::TorchReport;
pub use back::triton::TritonReport;
pub use cast::CastReport;
pub use convert::convert;
pub use decoder::{Fact, Given};
pub use dtypes::{Cast, CastFrom};
pub use each::{Converted, EachReport, convert_each};
pub use error::{Error, Result, problems};
pub use inspect::{InspectOptions, InspectReport, RowView, TensorHash, TensorRow, Totals, inspect};
pub use invalid_option::InvalidOption;
pub use model::{Architecture, ModelOptions, architectures, usual_modules};
pub use names::Names;
pub use naming::default_output;
pub use note::{Note, count, counted, size};
pub use observer::{Action, Observer, Step, advance, check, sha256};
pub use options::{AllowedGlobals, ConvertOptions, Fields, SafetensorsOptions, Torch};
pub use output::{ForeignKind, OutputKind, Setting};
pub use pickle_vm::trace::View;
pub use rename::Rename;
pub use report::{ConvertReport, Made};
pub use scan::{FileScan, Outcome, ScanOptions, ScanSummary, Verdict, globals_of_risk, not_followed, scan};
pub use script::usual_scripts;
pub use select::{Selected, Selection, select};
pub use store::IfExists;
pub use tensor::{Dtype, NoInteger};
pub use trace::{Listing, TraceOptions, trace};
pub use values::{ValueRow, ValueRows};
