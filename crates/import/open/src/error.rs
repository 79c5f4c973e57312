//! Errors of opening inputs and of changing their tensors.
//!
//! Each text is complete: it contains the text of its cause, and describes the problem. The program that prints it adds the
//! remedy.

use std::path::{Path, PathBuf};

use byte_source::{Detail, ErrorKind, RecordDamaged};
use carton_format::{Carton, MODEL_PT, Problems};
use tensor::{Dtype, Tensors};

use crate::error_text::{key_list, with_tensors_under};
use crate::{AdapterOverview, ArrayError, InvalidOption, files};

/// Result type with the error of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reasons for which an input cannot be opened, or its tensors cannot be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of another crate.
    #[error(transparent)]
    Located(#[from] byte_source::Error),
    /// A path does not name a checkpoint.
    #[error("{0}")]
    InputFiles(#[source] files::Error),
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
    /// A path that should be merged has no adapter.
    #[error(
        "{}: no adapter_config.json with adapter_model.safetensors or adapter_model.bin was found; expected the folder that \
         save_pretrained of peft writes",
        path.display()
    )]
    NoAdapter { path: PathBuf },
    /// The input is an adapter, which has no weights of its base.
    #[error(
        "{}: this is an adapter{}, and not a model",
        path.display(),
        overview.base.as_ref().map_or_else(String::new, |base| format!(" for {base}"))
    )]
    AdapterAlone { path: PathBuf, overview: Box<AdapterOverview> },
    /// A pickle names a global that can run code, and the options do not allow such globals.
    #[error("its pickle names `{global}` at offset 0x{offset:x}, which can run code where Python loads it")]
    DangerousGlobal {
        global: String,
        /// Offset of the opcode that names the global, in bytes from the start of the pickle.
        offset: u64,
    },
    /// A pickle names an unknown global, and the options do not allow such globals.
    #[error("its pickle names `{global}` at offset 0x{offset:x}, which is not known")]
    UnknownGlobal {
        global: String,
        /// Offset of the opcode that names the global, in bytes from the start of the pickle.
        offset: u64,
    },
    /// A pickle uses a global of the standard library, torch or numpy in a way that nobody has judged, and the options do
    /// not allow that.
    #[error(
        "its pickle names `{global}` at offset 0x{offset:x}, which {use_text}: nobody has judged what that runs"
    )]
    UnreviewedGlobal {
        global: String,
        /// Offset of the opcode that names the global, in bytes from the start of the pickle.
        offset: u64,
        /// Use that was not judged, as the end of a sentence about the global.
        use_text: &'static str,
    },
    /// The checkpoint contains no tensors.
    #[error("it contains no tensors")]
    NoTensors,
    /// A tensor cannot be shown or written as an array.
    #[error("tensor `{}` {reason}", name.escape_debug())]
    Array {
        name: String,
        #[source]
        reason: ArrayError,
    },
    /// No tensor is under the key, or the patterns exclude all of them.
    #[error("no tensor is under `{key}`, or the patterns exclude them all{}", with_tensors_under(under))]
    NoTensorsUnderKey {
        key: String,
        /// First keys of the root dict that contain tensors.
        under: Vec<String>,
    },
    /// Views repeat the bytes of their storages, so hashing them would read many times the input.
    #[error(
        "the tensors have {nbytes} bytes, because views repeat bytes: more than {allowed}, the limit for this input"
    )]
    DigestExpansion {
        /// Bytes of the tensors.
        nbytes: u64,
        /// Largest number of bytes.
        allowed: u64,
    },
    /// The patterns exclude every tensor.
    #[error("the patterns exclude every tensor")]
    AllTensorsExcluded,
    /// No name of a selected tensor begins with the prefix to remove.
    #[error("no tensor that is kept has a name that begins with `{prefix}`")]
    NoSuchPrefix { prefix: String },
    /// A regular expression matches none of the tensor names.
    #[error("no tensor that is kept has a name that matches `{pattern}`")]
    NothingRenamed { pattern: String },
    /// A renamed tensor would have an empty name.
    #[error("`{}` would have no name", name.escape_debug())]
    EmptyName {
        /// Name of the tensor before renaming.
        name: String,
    },
    /// Two renamed tensors would have the same name.
    #[error(
        "`{}` and `{}` would both be called `{}`",
        first.escape_debug(),
        second.escape_debug(),
        name.escape_debug()
    )]
    SameName {
        /// Common name after renaming.
        name: String,
        /// Name of the first tensor before renaming.
        first: String,
        /// Name of the second tensor before renaming.
        second: String,
    },
    /// Several keys of the root dict contain weights.
    #[error("several keys hold weights: {}", key_list(keys))]
    SeveralKeys {
        /// Name, number of tensors, and number of tensor bytes of each key.
        keys: Vec<(String, u64, u64)>,
    },
    /// The dtype of a tensor cannot be cast to the requested one.
    #[error("tensor `{}`: {from} cannot be cast to {to}", name.escape_debug())]
    CannotCast {
        /// Name of the tensor.
        name: String,
        from: Dtype,
        to: Dtype,
    },
    /// A selected tensor has no data.
    #[error("tensor `{name}` has no data: it is {what}")]
    NoData {
        /// Name of the tensor.
        name: String,
        /// Kind of the tensor with its article.
        what: String,
    },
    /// The tensors cannot be translated into the requested layout.
    #[error("{0}")]
    LayoutTranslation(byte_source::Error),
    /// A carton cannot be read.
    #[error("{0}")]
    ReadCarton(Box<carton_format::Error>),
    /// The model in a carton cannot be read.
    #[error("`{}`: {reason}", path.escape_debug())]
    CartonModel {
        /// Path of the model in the carton.
        path: String,
        reason: Box<torch_import::Error>,
    },
    /// A document violates Carton's specification.
    #[error("{}: {}", path.display(), problems.count_text())]
    Document {
        /// File that contains the problems.
        path: PathBuf,
        problems: Problems,
    },
}

impl Error {
    /// Converts errors of the reader while it reads the carton at `path`.
    pub fn from_carton(path: &Path) -> impl Fn(carton_format::Error) -> Self + '_ {
        use carton_format::Error as Reader;
        move |error| match error {
            Reader::Located(error) => Self::Located(error),
            Reader::Document(problems) => Self::Document { path: path.to_owned(), problems },
            // These name the file.
            error @ (Reader::Map(_) | Reader::Io { .. }) => Self::ReadCarton(Box::new(error)),
            error => Self::at(path)(Self::ReadCarton(Box::new(error))),
        }
    }

    /// Converts an error of reading the model in a carton.
    pub(crate) fn carton_model(carton: &Carton, reason: torch_import::Error) -> Self {
        let reason = Self::CartonModel { path: MODEL_PT.to_owned(), reason: Box::new(reason) };
        Self::at(carton.path())(reason)
    }

    /// Returns the category of the error, by which a caller can react.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::InputFiles(reason) => reason.kind(),
            Self::AtPath { reason, .. } => reason.kind(),
            Self::Located(reason) | Self::LayoutTranslation(reason) => reason.kind(),
            Self::ReadCarton(reason) => reason.kind(),
            Self::CartonModel { reason, .. } => reason.kind(),
            Self::Option(_)
            | Self::NoTensorsUnderKey { .. }
            | Self::AllTensorsExcluded
            | Self::DigestExpansion { .. }
            | Self::NoSuchPrefix { .. }
            | Self::NothingRenamed { .. }
            | Self::EmptyName { .. }
            | Self::SameName { .. }
            | Self::CannotCast { .. } => ErrorKind::Option,
            Self::DangerousGlobal { .. }
            | Self::UnknownGlobal { .. }
            | Self::UnreviewedGlobal { .. }
            | Self::NoTensors
            | Self::NoAdapter { .. }
            | Self::AdapterAlone { .. }
            | Self::SeveralKeys { .. }
            | Self::NoData { .. }
            | Self::Document { .. } => ErrorKind::Input,
            Self::Array { reason, .. } => match reason {
                ArrayError::Read(reason) => reason.kind(),
                ArrayError::Write(reason) => reason.into(),
                _ => ErrorKind::Unsupported,
            },
        }
    }
}

impl Error {
    /// Returns a function that adds the path of its file to an error.
    pub fn at(path: &Path) -> impl Fn(Self) -> Self {
        move |error| match error {
            Self::Located(error) => Self::Located(error.in_file(path)),
            reason => Self::AtPath { path: path.to_owned(), reason: Box::new(reason) },
        }
    }

    /// Returns true if the caller cancelled the work.
    pub fn is_cancelled(&self) -> bool {
        self.kind() == ErrorKind::Cancelled
    }

    /// Returns the problem of another crate, if it is one of `D`.
    pub fn detail<D: Detail>(&self) -> Option<&D> {
        match self {
            Self::Located(error) => error.detail(),
            _ => None,
        }
    }

    /// Adds the name of the first tensor that reads the damaged record, if the error is about damage and names no tensor
    /// yet.
    #[must_use]
    pub fn with_tensor(self, tensors: &Tensors) -> Self {
        match self {
            Self::Located(error) if error.detail::<RecordDamaged>().is_some() => {
                let place = error.location();
                let first = tensors.iter().find(|(_, tensor)| tensor.storage().reads_record(&place));
                Self::Located(match first {
                    Some((name, _)) => error.in_tensor(name),
                    None => error,
                })
            }
            error => error,
        }
    }

    /// Returns the error without the paths that wrap it.
    pub fn reason(&self) -> &Self {
        match self {
            Self::AtPath { reason, .. } => reason.reason(),
            error => error,
        }
    }
}

impl From<files::Error> for Error {
    fn from(error: files::Error) -> Self {
        if error.kind() == ErrorKind::Cancelled {
            return byte_source::Cancelled.into();
        }
        Self::InputFiles(error)
    }
}

impl From<InvalidOption> for Error {
    fn from(error: InvalidOption) -> Self {
        Self::Option(error)
    }
}

/// Implements `From` for problems of other crates.
macro_rules! from {
    ($($problem:ty),*) => {
        $(impl From<$problem> for Error {
            fn from(problem: $problem) -> Self {
                Self::Located(problem.into())
            }
        })*
    };
}

from! { byte_source::Cancelled, byte_source::FileError, output::Problem, quantization::Problem }
