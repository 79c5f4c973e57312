//! Errors of conversions.
//!
//! Each text is complete: it contains the text of its cause, and describes the problem. The program that prints it adds the
//! remedy.

use std::io;
use std::path::{Path, PathBuf};

use byte_source::{Detail, ErrorKind};
use tensor::{Dtype, Tensors};

use crate::InvalidOption;

/// Result type with the error of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reasons for which an input cannot be converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input cannot be opened or read, or its tensors cannot be changed.
    #[error(transparent)]
    Open(open::Error),
    /// An option has an invalid value.
    #[error("{0}")]
    Option(InvalidOption),
    /// Error in a file, with the path of the file.
    #[error("{}: {reason}", path.display())]
    AtPath {
        path: PathBuf,
        #[source]
        reason: Box<Error>,
    },
    /// An input cannot be read while the output is written.
    #[error("cannot read the inputs of {}: {reason}", path.display())]
    Read {
        /// Output whose inputs were read.
        path: PathBuf,
        reason: io::Error,
    },
    /// TorchScript code to be kept uses an operator or a class that the options do not allow.
    #[error("its code in {record} uses `{operator}`, which {}", if *is_dangerous { "can read or write files" } else { "is not known" })]
    DisallowedOperator {
        /// Name of the record with the code.
        record: String,
        /// Name of the operator or class.
        operator: String,
        /// True if the operator can read or write files, or call into Python; false if it is unknown.
        is_dangerous: bool,
    },
    /// Views repeat the bytes of their storages, so the output would be many times as large as the input.
    #[error(
        "the output would have {output} bytes, and the input has {input}: more than {factor} times as many"
    )]
    Expansion {
        /// Bytes of the inputs.
        input: u64,
        /// Bytes of the output.
        output: u64,
        /// Maximum factor.
        factor: u64,
    },
    /// The output has no place for quantized weights, and the options do not ask for their numbers.
    #[error("its weights are quantized with {method}: {reason}")]
    QuantizedInput {
        /// Method, in the names of `transformers`.
        method: String,
        /// What the output cannot represent.
        reason: Box<Error>,
    },
    /// The tensors do not match the model that the documents or the options describe.
    #[error("{reason}")]
    Model {
        /// Path that the user gave for the checkpoint.
        root: PathBuf,
        reason: byte_source::Error,
    },
    /// The module would only return its tensors, and the options require a model that runs.
    #[error("it is not a model that runs: {}", no_model_reason_text(why.as_ref()))]
    NotAModel {
        /// Reason; `None` if the options ask for weights.
        why: Option<decoder::NoModelReason>,
    },
    /// The module would only return its tensors, and Triton needs a model that runs.
    #[error("it is not a model that runs, and Triton needs one: {}", no_model_reason_text(why.as_ref()))]
    NothingToServe {
        /// Reason; `None` if the options ask for weights.
        why: Option<decoder::NoModelReason>,
    },
    /// The input is a TorchScript module whose code is not kept, and Triton needs a model that runs.
    #[error("it is a TorchScript module, and its code cannot be kept: {}", script_reason_text(why.as_ref()))]
    ScriptToServe {
        /// Reason; `None` if the options change tensors.
        why: Option<torchscript::Uncallable>,
    },
    /// Triton takes the number at the end of an output's name for the index of the output.
    #[error("Triton takes the number at the end of the output name `{}` for the index of an output", name.escape_debug())]
    TritonOutputNumber { name: String },
    /// The module would only return its tensors, and self tests need a model that runs.
    #[error("it is not a model that runs, so there is nothing to test: {}", no_model_reason_text(why.as_ref()))]
    NothingToTest {
        /// Reason; `None` if the options ask for weights.
        why: Option<decoder::NoModelReason>,
    },
    /// The input is a TorchScript module that keeps its code, and self tests need a decoder.
    #[error(
        "only decoders have self tests, and it is a TorchScript module, whose code PyTorch or Carton runs"
    )]
    ScriptToTest,
    /// The logits of a self test cannot be computed.
    #[error("cannot compute the logits of the self test: {0}")]
    Logits(byte_source::Error),
    /// The module of a carton only returns its tensors, and Triton needs a model that runs.
    #[error("its module returns tensors by name, and Triton needs a model that runs")]
    CartonOfWeights,
    /// The module of a carton was not written by this program.
    #[error("its model is a TorchScript module with its own code, not a decoder{}", differing_code(record))]
    ForeignModule {
        /// Name of a record that differs.
        record: String,
    },
    /// Triton's PyTorch backend has no data type for an input or output.
    #[error("`{}`: Triton's PyTorch backend has no {dtype}", name.escape_debug())]
    TritonPort {
        /// Name of the input or output.
        name: String,
        dtype: Dtype,
    },
    /// Options for calling a module are given, and its code does not run.
    #[error("its code does not run: {why}")]
    NotScript { why: torchscript::Uncallable },
    /// Carton has no data type for a tensor.
    #[error("tensor `{}`: Carton has no {dtype}", name.escape_debug())]
    Port {
        /// Name of the tensor.
        name: String,
        dtype: Dtype,
    },
    /// A TOML file cannot be parsed.
    #[error("{}{place}: {message}", path.display())]
    Toml {
        path: PathBuf,
        /// Position as `:LINE:COLUMN`, or empty.
        place: String,
        /// Message of the parser.
        message: String,
    },
    /// The caller's writer returned an error.
    #[error("cannot write the listing: {0}")]
    Output(#[source] io::Error),
    /// The output's format cannot represent some of the tensors.
    #[error("{format} cannot hold {}", unsupported_tensors_text(tensors, *count))]
    UnsupportedTensors {
        /// Format of the output, as the start of a sentence.
        format: &'static str,
        /// True if `torch.save` can write all of these tensors.
        torch_can: bool,
        /// Names of the first tensors, with their dtypes or layouts.
        tensors: Vec<(String, String)>,
        /// Number of all such tensors.
        count: usize,
    },
    /// The output folder contains a model file that is not part of the output.
    #[error("{} is not part of this output, and programs might read it instead", path.display())]
    OtherModelInFolder { path: PathBuf },
}

impl Error {
    /// Returns the category of the error, by which a caller can react.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Open(reason) => reason.kind(),
            Self::AtPath { reason, .. } | Self::QuantizedInput { reason, .. } => reason.kind(),
            Self::Model { reason, .. } | Self::Logits(reason) => reason.kind(),
            Self::Read { reason, .. } | Self::Output(reason) => reason.into(),
            Self::Option(_) | Self::Expansion { .. } | Self::NotScript { .. } => ErrorKind::Option,
            Self::DisallowedOperator { .. }
            | Self::NotAModel { .. }
            | Self::NothingToServe { .. }
            | Self::ScriptToServe { .. }
            | Self::TritonOutputNumber { .. }
            | Self::NothingToTest { .. }
            | Self::ScriptToTest
            | Self::CartonOfWeights
            | Self::ForeignModule { .. }
            | Self::Toml { .. }
            | Self::OtherModelInFolder { .. } => ErrorKind::Input,
            Self::TritonPort { .. } | Self::Port { .. } | Self::UnsupportedTensors { .. } => {
                ErrorKind::Unsupported
            }
        }
    }

    /// Returns a function that adds the path of its file to an error.
    pub fn at(path: &Path) -> impl Fn(Self) -> Self {
        move |error| match error {
            Self::Open(error) => Self::Open(error.in_file(path)),
            reason => Self::AtPath { path: path.to_owned(), reason: Box::new(reason) },
        }
    }

    /// Converts an error of the system at the input at `path`.
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Self + Copy + '_ {
        move |error| byte_source::Error::from(error).in_file(path).into()
    }

    /// Returns true if the caller cancelled the work.
    pub fn is_cancelled(&self) -> bool {
        self.kind() == ErrorKind::Cancelled
    }

    /// Returns the problem of another crate, if it is one of `D`.
    pub fn detail<D: Detail>(&self) -> Option<&D> {
        match self {
            Self::Open(error) => error.detail(),
            _ => None,
        }
    }

    /// Returns the error without the paths that wrap it.
    pub(crate) fn reason(&self) -> &Self {
        match self {
            Self::AtPath { reason, .. } => reason.reason(),
            error => error,
        }
    }

    /// Adds the name of the first tensor that reads the damaged record, if the error is about damage and names no tensor
    /// yet.
    #[must_use]
    pub(crate) fn with_tensor(self, tensors: &Tensors) -> Self {
        match self {
            Self::Open(error) => Self::Open(open::name_damaged_tensor(error, tensors)),
            error => error,
        }
    }
}

impl From<open::Error> for Error {
    fn from(error: open::Error) -> Self {
        Self::Open(error)
    }
}

/// Implements `From` for errors and problems of other crates.
macro_rules! from {
    ($($problem:ty),*) => {
        $(impl From<$problem> for Error {
            fn from(problem: $problem) -> Self {
                Self::Open(problem.into())
            }
        })*
    };
}

from! {
    carton_format::Problem, byte_source::Cancelled, byte_source::FileError, open::InvalidOption, open::Problem, open::files::Problem,
    output::Problem
}

impl From<InvalidOption> for Error {
    fn from(error: InvalidOption) -> Self {
        match error {
            InvalidOption::Open(error) => Self::Open(error.into()),
            error => Self::Option(error),
        }
    }
}

/// Lists tensors with their dtypes or layouts, such as `a` (complex128), `b` (nested) and 3 more.
pub(crate) fn unsupported_tensors_text(tensors: &[(String, String)], count: usize) -> String {
    let named = tensors.iter().map(|(name, what)| format!("`{}` ({what})", name.escape_debug()));
    let named = named.collect::<Vec<_>>().join(", ");
    match count.saturating_sub(tensors.len()) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Formats the reason for which a module only returns its tensors.
fn no_model_reason_text(why: Option<&decoder::NoModelReason>) -> String {
    why.map_or_else(|| "weights were asked for".to_owned(), ToString::to_string)
}

/// Formats the reason for which the code of a TorchScript module is not kept.
fn script_reason_text(why: Option<&torchscript::Uncallable>) -> String {
    why.map_or_else(|| "the options change its tensors".to_owned(), ToString::to_string)
}

/// Returns a clause about the record that differs, if it is source text. The object of a converted module always differs.
fn differing_code(record: &str) -> String {
    let is_code = record.starts_with("code/");
    if is_code {
        format!(": conversions do not write its record `{}`", record.escape_debug())
    } else {
        String::new()
    }
}
