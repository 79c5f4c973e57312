//! The documents of the Carton file format v1 as types: `carton.toml`, `MANIFEST`, `LINKS`,
//! `tensor_data/index.toml` and the files of string tensors. No I/O.
//!
//! Parsing includes checking: all problems of a document are reported together, each with its place. Fields that the
//! specification does not define are kept.
//!
//! ```
//! use carton_format::Config;
//!
//! let text = "spec_version = 1\n[runner]\nrunner_name = 'torchscript'\nrequired_framework_version = '=x'\n";
//! let error = Config::parse(text).expect_err("`=x` is not a version");
//! assert_eq!(
//!     error.to_string(),
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

mod check;
mod config;
mod error;
mod fields;
mod hash;
mod links;
mod manifest;
mod parse;
mod path;
mod print;
mod problem;
mod spec;
mod tensor_data;

pub use config::{Config, DataType, Dimension, Example, Parsed, Port, References, Runner, SelfTest, Shape};
pub use error::Error;
pub use fields::find_position;
pub use hash::{sha256_from_hex, sha256_to_hex};
pub use links::Links;
pub use manifest::Manifest;
pub use path::is_valid_carton_path;
pub use problem::{Problem, ProblemKind, Problems, TextPosition};
pub use spec::{MISC_REFERENCE, MODEL_PT, SHORT_DESCRIPTION_MAX, SPEC_VERSION, TENSOR_REFERENCE};
pub use tensor_data::{FileLen, StringTensorFile, TensorIndex, TensorSpec};
