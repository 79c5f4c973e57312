//! Compares checkpoints and cartons: one digest for equal tensors, and a list of what differs. [`page`] shows one of them, or the
//! differences of two, as an HTML page.
//!
//! Inputs are opened, and their tensors selected, as a conversion does it. Nothing here prints or exits.
//!
//! ```
//! use compare::{InputOptions, digest};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("model.safetensors");
//! # let header = br#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
//! # std::fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header, &[7]].concat())?;
//! let report = digest(&InputOptions::new(&path), &())?;
//! println!("{}  {}", report.digest, report.file);
//! # assert_eq!((report.digest.len(), report.tensors), (64, 1));
//! # Ok(())
//! # }
//! ```

mod bytes;
mod diff;
mod diff_options;
mod digest;
mod fingerprint;
mod input;
mod matching;
mod numbers;
pub mod page;
mod rearrangement;
mod report;
mod segments;
mod values;

pub use carton_tools::{Error, Result};
pub use diff::diff;
pub use diff_options::{DiffOptions, SideSelections};
pub use digest::{DigestReport, digest};
pub use input::InputOptions;
pub use numbers::{ElementChange, FirstChange};
pub use rearrangement::{Rearrangement, RotaryLayout};
pub use report::{
    Change, ComparedInput, DiffCounts, DiffReport, TensorChange, TensorSummary, ValueDifference,
};

/// Version of the format of every report of this crate.
const SCHEMA_VERSION: u32 = 1;
