//! Opens cartons lazily: a `.carton` file or an unpacked folder.
//!
//! [`Carton::open`] reads the directory, MANIFEST and LINKS. Any file is then read in constant memory,
//! and its checksum and hash are checked on the way; the tensors of a stored model are mapped in place.
//!
//! ```
//! use std::io::Read;
//!
//! use carton_format::MODEL_PT;
//! use carton_reader::Carton;
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("x.carton");
//! # let config = carton_format::Config::new(carton_format::Runner::new("torchscript", "=2.0", 1)).to_toml()?;
//! # let file = |path, bytes| carton_writer::CartonMember::new(path, carton_writer::EntryContent::Bytes(bytes));
//! # let files = vec![
//! #     file("carton.toml", config.as_bytes()),
//! #     file("tensor_data/index.toml", b"tensor = []\n"),
//! #     file(carton_format::MODEL_PT, b"weights"),
//! # ];
//! # let mut out = std::fs::File::create(&path)?;
//! # carton_writer::CartonLayout::new(files).write(&mut out, byte_source::ProgressReporter::unobserved())?;
//! let carton = Carton::open(&path)?;
//! assert_eq!(carton.config()?.document.runner.runner_name, "torchscript");
//! assert_eq!(carton.entry(MODEL_PT)?.len, 7);
//!
//! // The last read fails if the hash differs from the one in MANIFEST.
//! let mut bytes = Vec::new();
//! carton.read(MODEL_PT)?.read_to_end(&mut bytes)?;
//! assert_eq!(bytes, b"weights");
//!
//! let report = carton.verify(byte_source::ProgressReporter::unobserved())?;
//! assert!(report.findings.is_empty(), "{:?}", report.findings);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The tensors of a stored TorchScript archive or checkpoint are views of the carton itself, of any size:
//!
//! ```no_run
//! let carton = carton_reader::Carton::open("llama.carton".as_ref())?;
//! let model = carton.model(carton_format::MODEL_PT)?;
//! let checkpoint = torch_import::Checkpoint::read(&model)?;
//! let (name, tensor) = checkpoint.tensors().next().ok_or("no tensors")?;
//! let bytes: Option<&[u8]> = tensor.mapped_bytes();
//! println!("{name}: {} of shape {:?}, {bytes:?}", tensor.dtype(), tensor.shape());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Carton::verify`] reads everything and reports all problems. [`Carton::tensor`] reads the tensors of
//! `tensor_data/`. A file that LINKS points to is an [`Error::NotFetched`]: this crate opens no connection.
//!
//! Facts: the Carton v1 specification; what Carton's own client requires beyond it is reported separately, as notes.

mod carton;
mod entry;
mod error;
mod link;
mod listing;
mod tensors;
mod verify;

pub use carton::{Carton, TOML_MAX};
pub use entry::{CartonEntry, EntryReader};
pub use error::{Error, Result};
pub use link::{MODEL_FOLDER, resolve_link};
pub use tensors::TensorData;
pub use verify::{CartonVerification, EntryTap, VerifyFinding};
pub use zip_format::CompressionMethod;
