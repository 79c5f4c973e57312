//! Packs, unpacks, verifies, shrinks and lists cartons and, with the feature `download`, resolves them.
//!
//! Most functions take a plain options struct and a [`byte_source::Observer`] for progress and cancellation, and return a
//! serialisable report. No function prints, exits or installs a signal handler. Notes about a carton are part of the report.
//!
//! ```
//! use carton_tools::{UnpackOptions, VerifyOptions, contents, unpack, verify};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let checkpoint = folder.path().join("llama.safetensors");
//! # let header = br#"{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
//! # std::fs::write(&checkpoint, [&(header.len() as u64).to_le_bytes()[..], header, &[7]].concat())?;
//! # convert::convert(&convert::ConvertOptions::new(&checkpoint), &())?;
//! # let path = folder.path().join("llama.carton");
//! let report = verify(&VerifyOptions::new(&path), &convert::default_modules, &())?;
//! for finding in &report.findings {
//!     println!("{}", finding.what);
//! }
//! for tensor in contents(&path)?.tensors {
//!     println!("{} {:?}", tensor.name, tensor.shape);
//! }
//! let report = unpack(&UnpackOptions::new(&path), &())?;
//! println!("{}: {} files, {} bytes", report.output, report.files, report.nbytes);
//! # assert!(folder.path().join("llama/model/model.pt").is_file());
//! # Ok(())
//! # }
//! ```

mod arrays;
#[cfg(feature = "download")]
mod cache;
mod code;
mod compare;
mod contents;
mod error;
mod kept_entry;
mod model_stream;
mod note;
mod npy;
mod open;
mod options;
mod pack;
#[cfg(feature = "download")]
mod resolve;
mod save;
mod script_outputs;
mod shrink;
mod unpack;
mod verify;

pub use ::open::{Selection, open_model};
pub use byte_source::Observer;
pub use byte_source::{Error, Result};
pub use code::CodeStatus;
pub use contents::{
    AbsentFileRow, CartonFileRow, CartonTensorRow, ContentsReport, contents, contents_of, tensors,
};
pub use error::{Problem, TensorError};
pub use note::CartonNote;
pub use npy::NpyError;
pub use open::{check_copy_space, copy_carton, open, open_packed_in, open_with};
#[cfg(feature = "download")]
pub use options::ResolveOptions;
pub use options::VerifyOptions;
pub use output::IfExists;
pub use pack::{ArrayFile, PackCompression, PackOptions, PackReport, pack};
#[cfg(feature = "download")]
pub use resolve::{ResolveReport, resolve};
pub use save::{SaveArrayOptions, SaveArrayReport, save_array, write_array};
pub use shrink::{ShrinkOptions, ShrinkReport, base_url, shrink};
pub use unpack::{UnpackOptions, UnpackReport, default_unpack_folder, unpack};
pub use verify::{CartonFinding, ModulesOf, VerifyReport, verify};

/// Version of the format of every report of this crate.
const SCHEMA_VERSION: u32 = 1;
