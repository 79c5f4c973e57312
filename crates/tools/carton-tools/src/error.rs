//! Errors of the work on a carton.
//!
//! The texts are complete: they contain their causes, and say what is wrong. The program that prints them adds advice.

use std::io;
use std::path::{Path, PathBuf};

use byte_source::{Detail, ErrorKind, FileError};
use carton_format::TensorIndex;
use tensor::Dtype;

use crate::NpyError;

/// Result whose error is this crate's [`Error`] by default.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of the work on a carton.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A carton cannot be written.
    #[error("{0}")]
    Convert(#[source] Box<convert::Error>),
    /// A file cannot be read or written, or the caller stopped the work.
    #[error(transparent)]
    Located(#[from] byte_source::Error),
    /// A carton cannot be read.
    #[error("{}", reason.text_at(path))]
    Reader {
        /// Carton, or folder to pack.
        path: PathBuf,
        #[source]
        reason: carton_format::Error,
    },
    /// The file is a checkpoint, not a carton.
    #[error("{} is a checkpoint ({format}), not a carton", path.display())]
    IsCheckpoint {
        path: PathBuf,
        /// Name of the checkpoint's format.
        format: &'static str,
    },
    /// The file is neither a carton nor a checkpoint.
    #[error("{} is not a carton", path.display())]
    NotACarton { path: PathBuf },
    /// The path is a folder, but the operation needs a packed carton.
    #[error("{} is a folder, not a packed carton", path.display())]
    IsFolder { path: PathBuf },
    /// The path is not a folder, but the operation needs one.
    #[error("{} is not a folder", path.display())]
    NotAFolder { path: PathBuf },
    #[error("cannot create the folder {}: {reason}", path.display())]
    CreateFolder { path: PathBuf, reason: io::Error },
    /// A file cannot be opened, read or written.
    #[error("{}: {reason}", path.display())]
    Io { path: PathBuf, reason: io::Error },
    /// A document of the carton cannot be written.
    #[error("{0}")]
    Format(#[source] carton_format::Error),

    /// The output lies in the folder to pack.
    #[error("the output {} is in the folder that is packed, {}", output.display(), folder.display())]
    OutputInFolder { output: PathBuf, folder: PathBuf },
    /// The folder has a file for which the format has no place.
    #[error(
        "{}: `{}` has no place in a carton, which holds carton.toml, model/, tensor_data/ and misc/",
        folder.display(),
        path.escape_debug()
    )]
    NoPlace {
        folder: PathBuf,
        /// Path of the file in the folder.
        path: String,
    },
    /// The folder has no file in `model/`.
    #[error("{}: there is no file in model/", folder.display())]
    NoModel { folder: PathBuf },
    /// A link leads to a file that is not packed.
    #[error("{}: a link leads to `{}`, which is not packed", folder.display(), target.escape_debug())]
    LinkNotPacked {
        folder: PathBuf,
        /// Path to which the link leads.
        target: String,
    },
    /// An array cannot be added as a tensor.
    #[error("tensor `{}`: {reason}", name.escape_debug())]
    Tensor {
        /// Name of the tensor.
        name: String,
        #[source]
        reason: TensorError,
    },
    /// An `.npy` file cannot be read.
    #[error("{}: {reason}", path.display())]
    Npy {
        path: PathBuf,
        #[source]
        reason: NpyError,
    },
    /// A view repeats the bytes of its storage, so its file would be many times as large.
    #[error(
        "tensor `{}` would have {nbytes} bytes, and its storage has {stored}: more than {factor} times as many",
        name.escape_debug()
    )]
    Expansion {
        /// Name of the tensor.
        name: String,
        /// Bytes of the storage.
        stored: u64,
        /// Bytes of the file.
        nbytes: u64,
        /// Maximum factor.
        factor: u64,
    },
    /// NumPy has neither the tensor's dtype nor a wider one for its numbers.
    #[error("tensor `{}`: NumPy has no {dtype}", name.escape_debug())]
    NoNumpyDtype {
        /// Name of the tensor.
        name: String,
        dtype: Dtype,
    },
    /// A file cannot be compressed.
    #[error("cannot compress `{}`: {reason}", path.escape_debug())]
    Compress {
        /// Path of the file in the carton.
        path: String,
        reason: io::Error,
    },

    /// The default folder to unpack into exists and has files.
    #[error("the folder {} exists and is not empty", folder.display())]
    FolderNotEmpty { folder: PathBuf },
    /// Files exist that would have to be replaced.
    #[error("these files exist: {}", path_list(paths))]
    FilesExist { paths: Vec<PathBuf> },
    /// A parent of an output file is not a folder, such as a link.
    #[error("cannot write into {}: it is not a folder", path.display())]
    ParentNotAFolder {
        /// Path of the parent.
        path: PathBuf,
    },

    /// Options select tensors of a checkpoint, but no checkpoint is given.
    #[error("tensors of a checkpoint are selected, but there is no checkpoint to compare with")]
    NoCheckpoint,

    /// The base URL of the blobs is not an http or https URL without a query.
    #[error("`{}` is not an http or https URL without a query", url.escape_debug())]
    BaseUrl {
        /// URL as the caller gave it.
        url: String,
    },
    /// An existing blob has another length than the file with that hash.
    #[error("{} has {found} bytes, but the file with that hash has {expected}", path.display())]
    BlobLength {
        path: PathBuf,
        /// Length of the blob in bytes.
        found: u64,
        /// Length of the carton's file in bytes.
        expected: u64,
    },
    /// The SHA-256 of an existing blob is not its name.
    #[error("{} is damaged: its SHA-256 is not its name", path.display())]
    BlobDamaged { path: PathBuf },
    /// A file in MANIFEST is neither in the carton nor in LINKS.
    #[error("{}: MANIFEST lists `{}`, which is neither in the carton nor in LINKS", path.display(), entry.escape_debug())]
    NotLinked {
        path: PathBuf,
        /// Path of the file in the carton.
        entry: String,
    },
    /// All URLs of a file failed.
    #[error("{}: cannot fetch `{}`: {}", path.display(), entry.escape_debug(), failure_list(failures))]
    Fetch {
        path: PathBuf,
        /// Path of the file in the carton.
        entry: String,
        /// Errors of the URLs, in the order of LINKS.
        failures: Vec<remote_source::Error>,
    },
}

impl Error {
    /// Returns the category of the error for callers.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Convert(reason) => reason.kind(),
            Self::Located(reason) => reason.kind(),
            Self::Reader { reason, .. } | Self::Format(reason) => reason.kind(),
            Self::Tensor { reason, .. } => reason.kind(),
            Self::Npy { reason, .. } => reason.kind(),
            Self::CreateFolder { reason, .. } | Self::Io { reason, .. } | Self::Compress { reason, .. } => {
                reason.into()
            }
            Self::FolderNotEmpty { .. } | Self::FilesExist { .. } | Self::ParentNotAFolder { .. } => {
                ErrorKind::Io
            }
            Self::IsCheckpoint { .. }
            | Self::NotACarton { .. }
            | Self::IsFolder { .. }
            | Self::NotAFolder { .. }
            | Self::NoPlace { .. }
            | Self::NoModel { .. }
            | Self::LinkNotPacked { .. } => ErrorKind::Input,
            Self::OutputInFolder { .. }
            | Self::NoCheckpoint
            | Self::BaseUrl { .. }
            | Self::Expansion { .. } => ErrorKind::Option,
            Self::NoNumpyDtype { .. } => ErrorKind::Unsupported,
            Self::BlobLength { .. } | Self::BlobDamaged { .. } | Self::NotLinked { .. } => ErrorKind::Damaged,
            Self::Fetch { failures, .. } => failures.last().map_or(ErrorKind::Input, Detail::kind),
        }
    }
}

/// Reason for which an array cannot be added as a tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The name is empty.
    #[error("the name cannot be empty")]
    NoName,
    /// Another array has the same name.
    #[error("two arrays have this name")]
    DuplicateName,
    /// A tensor in the folder's index has the same name.
    #[error("{} already has a tensor of this name", TensorIndex::PATH)]
    NameInIndex,
    /// Carton does not have the array's dtype.
    #[error("Carton has no {0}")]
    Dtype(Dtype),
    /// The strings cannot be printed as TOML.
    #[error("its strings cannot be printed as TOML: {0}")]
    Print(String),
    /// The strings take more bytes than a reader accepts.
    #[error("its strings take {found} bytes, more than the {limit} that a document may have")]
    TooLong {
        /// Length of the TOML text in bytes.
        found: usize,
        /// Largest length that a reader accepts, in bytes.
        limit: u64,
    },
}

impl TensorError {
    /// Returns the category of the error for callers.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoName | Self::DuplicateName | Self::NameInIndex => ErrorKind::Option,
            Self::Dtype(_) | Self::Print(_) | Self::TooLong { .. } => ErrorKind::Unsupported,
        }
    }
}

impl Error {
    /// Converts errors of the reader while it reads the carton or the folder at `path`.
    pub fn from_reader(path: &Path) -> impl Fn(carton_format::Error) -> Self + '_ {
        move |error| match error {
            carton_format::Error::Located(error) => Self::Located(error),
            reason => Self::Reader { path: path.to_owned(), reason },
        }
    }

    /// Converts errors of the reader while bytes of the carton at `path` are copied into `target`.
    pub(crate) fn reader_or_target<'p>(
        path: &'p Path,
        target: &'p Path,
    ) -> impl Fn(carton_format::Error) -> Self + 'p {
        move |error| match error {
            carton_format::Error::WriteOutput(reason) => {
                Self::Located(FileError::Write { path: target.to_owned(), reason }.into())
            }
            error => Self::from_reader(path)(error),
        }
    }

    /// Converts errors of the system at the file at `path`.
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Self + '_ {
        move |reason| Self::Io { path: path.to_owned(), reason }
    }

    pub(crate) fn tensor(name: &str, reason: TensorError) -> Self {
        Self::Tensor { name: name.to_owned(), reason }
    }
}

impl Error {
    /// Returns true if the caller cancelled the work.
    pub fn is_cancelled(&self) -> bool {
        self.kind() == ErrorKind::Cancelled
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

from! { byte_source::Cancelled, FileError, output::Problem, remote_source::Error }

impl From<convert::Error> for Error {
    fn from(error: convert::Error) -> Self {
        match error {
            convert::Error::Open(error) => error.into(),
            error => Self::Convert(Box::new(error)),
        }
    }
}

fn path_list(paths: &[PathBuf]) -> String {
    /// Largest number of paths in the text.
    const PATHS_SHOWN: usize = 5;
    let mut names: Vec<String> =
        paths.iter().take(PATHS_SHOWN).map(|path| path.display().to_string()).collect();
    if paths.len() > PATHS_SHOWN {
        names.push(format!("{} more", paths.len().saturating_sub(PATHS_SHOWN)));
    }
    names.join(", ")
}

fn failure_list(failures: &[remote_source::Error]) -> String {
    failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
