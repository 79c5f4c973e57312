//! Looks at checkpoints and cartons without writing one: inspects, scans and traces them, compares them, and shows them as a
//! [`page`].
//!
//! Each call takes a plain options struct and an [`Observer`] for progress and cancellation, and returns a report that can be
//! serialised. Nothing here prints, exits or installs a signal handler.
//!
//! ```
//! use inspect::{InputOptions, InspectOptions, digest, inspect};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("model.safetensors");
//! # let header = br#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
//! # std::fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header, &[7]].concat())?;
//! for row in inspect(&InspectOptions::new(&path), &())?.tensors {
//!     println!("{} {}", row.name, row.dtype);
//! }
//! let report = digest(&InputOptions::new(&path), &())?;
//! println!("{}  {}", report.digest, report.file);
//! # assert_eq!((report.digest.len(), report.tensors), (64, 1));
//! # Ok(())
//! # }
//! ```

mod check;
mod compare;
mod error;
mod inspect;
pub mod page;
mod scan;
mod trace;

pub use byte_source::Observer;
pub use byte_source::{Error, Result};
pub use check::{CheckOptions, CheckReport, RepeatedTensor, UnindexedFile, check};
pub use compare::diff::diff;
pub use compare::diff_options::{DiffOptions, SideSelections};
pub use compare::digest::{DigestReport, digest};
pub use compare::input::InputOptions;
pub use compare::numbers::{ElementChange, FirstChange};
pub use compare::rearrangement::{Rearrangement, RotaryLayout};
pub use compare::report::{
    Change, ComparedInput, DiffCounts, DiffReport, TensorChange, TensorSummary, ValueDifference,
};
pub use error::Problem;
pub use families::{MisshapedTensor, MissingTensor, TensorGroup};
pub use inspect::module_tree::{TreeRow, module_tree};
pub use inspect::named::{NamedContent, NamedItem, find_named};
pub use inspect::quantized::RowQuantization;
pub use inspect::rows::{RowView, TensorHash, TensorRow};
pub use inspect::statistics::RowStatistics;
pub use inspect::{InspectOptions, InspectReport, TensorSort, inspect, inspect_tensors};
pub use pickle_vm::trace::TraceView;
pub use scan::custom_code::CustomClass;
pub use scan::policy::AllowedGlobal;
pub use scan::{
    CUSTOM_CODE_NOTE, FileScan, ScanOptions, ScanOutcome, ScanSummary, Verdict, globals_of_risk,
    linked_folder_note, scan,
};
pub use tensor::{ElementValue, Histogram, TensorStatistics};
pub use torch_import::{GlobalUse, GlobalUseKind, GlobalUseKinds, Risk, Scan as ScannedFile, ScanDepth};
pub use trace::{TraceListing, TraceOptions, open_pickles, trace};
