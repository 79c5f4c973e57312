//! Why a carton does not run.

use std::path::PathBuf;

use byte_source::{Cancelled, ErrorKind, ReadError};
use tensor::Dtype;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a carton does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The carton cannot be read.
    #[error("{0}")]
    Carton(#[source] carton_tools::Error),
    /// The carton needs another program.
    #[error(
        "{}: its model needs Carton's runner `{}`; only models of the runner `torchscript` can run here",
        path.display(), runner.escape_debug()
    )]
    Runner {
        /// The carton.
        path: PathBuf,
        /// The name of the runner.
        runner: String,
    },
    /// The code of the model is not ours.
    #[error(
        "{}: `{}` of the model is not what a conversion writes, so the model cannot run here; Carton's torchscript runner, \
         PyTorch and Triton's PyTorch backend run it", path.display(), record.escape_debug()
    )]
    OtherCode {
        /// The carton.
        path: PathBuf,
        /// The record that differs.
        record: String,
    },
    /// carton.toml has a port that the model does not have.
    #[error(
        "{}: carton.toml has the {side} `{}`, which the model does not have; it has {}",
        path.display(), name.escape_debug(), known.join(", ")
    )]
    Port {
        /// The carton.
        path: PathBuf,
        /// Whether it is an input or an output.
        side: Side,
        /// Its name, or its internal name if it has one.
        name: String,
        /// Those of the model.
        known: Vec<&'static str>,
    },
    /// An option for the runner with a value that it cannot have.
    #[error("{}: `runner.opts.{name}` is {found}, expected a number of at least 1", path.display())]
    RunnerOption {
        /// The carton.
        path: PathBuf,
        /// The option.
        name: &'static str,
        /// Its value, as in carton.toml.
        found: String,
    },
    /// The carton is damaged.
    #[error("{}: {}", path.display(), pipeline::problems(*problems))]
    Damaged {
        /// The carton.
        path: PathBuf,
        /// How many problems were found.
        problems: usize,
    },
    /// An input cannot be used.
    #[error(transparent)]
    Input(#[from] InputError),
    /// An output that the carton does not have.
    #[error("there is no output `{}`; {}", name.escape_debug(), listed("the outputs are", known))]
    NoOutput {
        /// Its name.
        name: String,
        /// Those that there are, or the first of many.
        known: Vec<String>,
    },
    /// An output with a dtype that Carton does not have and that has no conversion.
    #[error("tensor `{}`: {dtype} cannot be an output of a carton", name.escape_debug())]
    OutputDtype {
        /// Its name.
        name: String,
        /// Its dtype.
        dtype: Dtype,
    },
    /// Tokens for a carton that takes none.
    #[error("{} holds weights; it does not take tokens", path.display())]
    NotAModel {
        /// The carton.
        path: PathBuf,
    },
    /// The model failed.
    #[error("{0}")]
    Model(#[source] forward::Error),
    /// A tensor cannot be read.
    #[error("tensor `{}`: {reason}", name.escape_debug())]
    Tensor {
        /// Its name.
        name: String,
        /// What is wrong.
        #[source]
        reason: ReadError,
    },
    /// A small storage that a tensor repeats again and again.
    #[error(
        "tensor `{}`: an expanded view of {} over a storage of {}", name.escape_debug(), pipeline::size(*nbytes),
        pipeline::size(*storage)
    )]
    Repeated {
        /// Its name.
        name: String,
        /// Bytes of its elements.
        nbytes: u64,
        /// Bytes of its storage.
        storage: u64,
    },
    /// The caller stopped the work.
    #[error("stopped")]
    Cancelled,
}

impl Error {
    /// Returns what the error means for a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Carton(reason) => reason.kind(),
            Self::Model(reason) => reason.kind(),
            Self::Tensor { reason, .. } => reason.kind(),
            Self::Runner { .. }
            | Self::OtherCode { .. }
            | Self::OutputDtype { .. }
            | Self::Repeated { .. } => ErrorKind::Unsupported,
            Self::Port { .. } | Self::RunnerOption { .. } | Self::Damaged { .. } => ErrorKind::Damaged,
            Self::Input(_) | Self::NoOutput { .. } | Self::NotAModel { .. } => ErrorKind::Input,
            Self::Cancelled => ErrorKind::Cancelled,
        }
    }
}

/// Which side of a model a port is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What it takes.
    Input,
    /// What it returns.
    Output,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Input => "input",
            Self::Output => "output",
        })
    }
}

/// Why an input cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// One that the model does not take.
    #[error("there is no input `{}`; {}", name.escape_debug(), listed("the inputs are", known))]
    Unknown {
        /// Its name.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// One that is needed.
    #[error("the input `{}` is missing", name.escape_debug())]
    Missing {
        /// Its name.
        name: String,
    },
    /// One that was given twice.
    #[error("the input `{}` is given twice", name.escape_debug())]
    Twice {
        /// Its name.
        name: String,
    },
    /// One with other elements.
    #[error("the input `{}` is {found}, expected {expected}", name.escape_debug())]
    Dtype {
        /// Its name.
        name: String,
        /// Its dtype.
        found: String,
        /// The dtype that carton.toml declares.
        expected: &'static str,
    },
    /// One with another shape.
    #[error("the input `{}` has the shape {found:?}, expected {}", name.escape_debug(), expected.escape_debug())]
    Shape {
        /// Its name.
        name: String,
        /// Its shape, in elements.
        found: Vec<u64>,
        /// The shape that carton.toml declares.
        expected: String,
    },
    /// A symbol that would have two values.
    #[error(
        "`{}` is {first} in the input `{}` and {second} in the input `{}`, expected the same",
        symbol.escape_debug(), first_input.escape_debug(), second_input.escape_debug()
    )]
    Symbol {
        /// The symbol of carton.toml.
        symbol: String,
        /// The input that has it first.
        first_input: String,
        /// Its value there: a size or a shape.
        first: String,
        /// The other input.
        second_input: String,
        /// Its value there.
        second: String,
    },
    /// Keys without values, or values without keys.
    #[error("one of past_key and past_value is missing: they come together")]
    HalfPast,
    /// A value that is not numbers where there must be some.
    #[error("the input `{}` is {found}, which the model does not take", name.escape_debug())]
    NotNumbers {
        /// Its name.
        name: String,
        /// What it is.
        found: &'static str,
    },
}

fn listed(are: &str, names: &[String]) -> String {
    if names.is_empty() {
        return "there are none".to_owned();
    }
    let names: Vec<String> = names.iter().map(|name| name.escape_debug().to_string()).collect();
    format!("{are} {}", names.join(", "))
}

impl From<Cancelled> for Error {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

impl From<carton_tools::Error> for Error {
    fn from(error: carton_tools::Error) -> Self {
        match error {
            carton_tools::Error::Cancelled => Self::Cancelled,
            error => Self::Carton(error),
        }
    }
}

impl From<forward::Error> for Error {
    fn from(error: forward::Error) -> Self {
        match error {
            forward::Error::Cancelled(_) => Self::Cancelled,
            error => Self::Model(error),
        }
    }
}
