//! Conversions of the errors of other crates.

use crate::{Error, InvalidOption};

impl From<checkpoint_files::Error> for Error {
    fn from(error: checkpoint_files::Error) -> Self {
        match error {
            checkpoint_files::Error::InconsistentSet { reason, .. }
                if matches!(*reason, torch_import::Error::Cancelled(_)) =>
            {
                Self::Cancelled
            }
            error => Self::InputFiles(error),
        }
    }
}

impl From<output::Error> for Error {
    fn from(error: output::Error) -> Self {
        match error {
            output::Error::Cancelled(_) => Self::Cancelled,
            error => Self::OutputFile(error),
        }
    }
}

impl From<InvalidOption> for Error {
    fn from(error: InvalidOption) -> Self {
        Self::Option(error)
    }
}

impl From<quantization::Error> for Error {
    fn from(error: quantization::Error) -> Self {
        match error {
            quantization::Error::Read(reason) => Self::from_read_error(reason, |reason| {
                Self::Quantization(quantization::Error::Read(reason.into()))
            }),
            error => Self::Quantization(error),
        }
    }
}

impl From<carton_format::Error> for Error {
    fn from(error: carton_format::Error) -> Self {
        Self::Format(error)
    }
}
