//! The Carton file format v1: its documents as types, and a reader of `.carton` files and unpacked folders.
//!
//! [`Carton::open`] reads the directory, MANIFEST and LINKS. Any file is then read in constant memory,
//! and its checksum and hash are checked on the way; the tensors of a stored model are mapped in place.
//!
//! ```
//! use std::io::Read;
//!
//! use carton_format::{Carton, MODEL_PT};
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
//! [`Carton::source`] is a file as a part of the carton itself: the tensors of a stored model are read where they are.
//! [`Carton::verify`] reads everything and reports all problems. [`Carton::tensor`] reads the tensors of
//! `tensor_data/`. A file that LINKS points to is an [`Problem::NotFetched`]: this crate opens no connection.
//!
//! # Documents
//!
//! `carton.toml`, `MANIFEST`, `LINKS`, `tensor_data/index.toml` and the files of string tensors are types. Parsing includes checking: all problems of a document are reported together, each with its place. Fields that the
//! specification does not define are kept.
//!
//! ```
//! use carton_format::{Config, Problem};
//!
//! let text = "spec_version = 1\n[runner]\nrunner_name = 'torchscript'\nrequired_framework_version = '=x'\n";
//! let error = Config::parse(text).expect_err("`=x` is not a version");
//! let Some(Problem::Document(problems)) = error.detail() else { panic!("{error}") };
//! assert_eq!(
//!     problems.to_string(),
//!     "carton.toml:4:30: runner.required_framework_version is `=x`, expected a semver requirement such as =2.0"
//! );
//! ```
//!
//! A document that was parsed can be changed and printed again:
//!
//! ```
//! use carton_format::{Config, DataType, Dimension, Port, Shape};
//!
//! let text = "spec_version = 1\nmine = 'kept'\n[runner]\nrunner_name = 'torchscript'\n\
//!             required_framework_version = '=2.0'\nrunner_compat_version = 1\n";
//! let mut config = Config::parse(text)?.document;
//! let shape = Shape::Dimensions(vec![Dimension::Symbol("batch".to_owned()), Dimension::Size(3)]);
//! config.outputs.push(Port::new("y", DataType::Float32, shape));
//! let printed = config.to_toml()?;
//! assert!(printed.contains("mine = \"kept\""));
//! assert!(printed.contains("shape = [\"batch\", 3]"));
//! # Ok::<(), carton_format::Error>(())
//! ```
//!
//! [`Manifest`] is the list of hashes, [`Links`] the list of URLs, [`TensorIndex`] the tensors of self tests and
//! examples. [`Config::check`] compares a configuration with the rest of its carton.
//!
//! Facts: the Carton v1 specification, and what Carton's own client requires beyond it: a
//! `tensor_data/index.toml`, `runner_compat_version`, `shape` on every input and output, `sample_out` on
//! every example, `inner` on every tensor of the index.

mod carton;
mod check;
mod config;
mod entry;
mod error;
mod fields;
mod find;
mod hash;
mod link;
mod links;
mod listing;
mod manifest;
mod parse;
mod path;
mod print;
mod problem;
mod spec;
mod tensor_data;
mod tensors;
mod verify;

pub use byte_source::{Error, Result};
pub use carton::{Carton, TOML_MAX};
pub use config::{Config, DataType, Dimension, Example, Parsed, Port, References, Runner, SelfTest, Shape};
pub use entry::{CartonEntry, EntryReader};
pub use error::Problem;
pub use fields::find_position;
pub use hash::sha256_from_hex;
pub use link::MODEL_FOLDER;
pub use links::Links;
pub use manifest::Manifest;
pub use path::is_valid_carton_path;
pub use problem::{DocumentProblem, DocumentProblems, ProblemKind, TextPosition};
pub use spec::{MISC_REFERENCE, MODEL_PT, SHORT_DESCRIPTION_MAX, SPEC_VERSION, TENSOR_REFERENCE};
pub use tensor_data::{FileLen, StringTensorFile, TensorIndex, TensorSpec};
pub use tensors::TensorData;
pub use verify::{CartonVerification, EntryTap, VerifyFinding};
pub use zip_format::CompressionMethod;
