//! Errors of the work on a carton.
//!
//! The texts are complete: they contain their causes, and say what is wrong. The program that prints them adds advice.

use std::io;
use std::path::{Path, PathBuf};

use byte_source::{Detail, Error, ErrorKind, FileError, Place, details};
use carton_format::TensorIndex;
use tensor::Dtype;

/// Problem of the work on a carton.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
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
    /// The output lies in the folder to pack.
    #[error("the output {} is in the folder that is packed, {}", output.display(), folder.display())]
    OutputInFolder { output: PathBuf, folder: PathBuf },
    /// The folder has a file for which the format has no place.
    #[error("`{}` has no place in a carton, which holds carton.toml, model/, tensor_data/ and misc/", path.escape_debug())]
    NoPlace {
        /// Path of the file in the folder.
        path: String,
    },
    /// The folder has no file in `model/`.
    #[error("there is no file in model/")]
    NoModel,
    /// A link leads to a file that is not packed.
    #[error("a link leads to `{}`, which is not packed", target.escape_debug())]
    LinkNotPacked {
        /// Path to which the link leads.
        target: String,
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
    #[error("NumPy has no {0}")]
    NoNumpyDtype(Dtype),
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
    #[error("MANIFEST lists `{}`, which is neither in the carton nor in LINKS", entry.escape_debug())]
    NotLinked {
        /// Path of the file in the carton.
        entry: String,
    },
    /// All URLs of a file failed.
    #[error("cannot fetch `{}`: {}", entry.escape_debug(), failure_list(failures))]
    Fetch {
        /// Path of the file in the carton.
        entry: String,
        /// Errors of the URLs, in the order of LINKS.
        failures: Vec<remote_source::Error>,
    },
}

details! {
    Problem => Problem::place {
        Io: FolderNotEmpty, FilesExist, ParentNotAFolder;
        Input: IsCheckpoint, NotACarton, IsFolder, NotAFolder, NoPlace, NoModel, LinkNotPacked;
        Option: OutputInFolder, NoCheckpoint, BaseUrl, Expansion;
        Unsupported: NoNumpyDtype;
        Damaged: BlobLength, BlobDamaged, NotLinked;
        [reason]: Compress;
        {last_kind => failures}: Fetch;
    }
}

impl Problem {
    fn place(&self) -> Place {
        match self {
            Self::IsCheckpoint { path, .. }
            | Self::NotACarton { path }
            | Self::IsFolder { path }
            | Self::NotAFolder { path }
            | Self::OutputInFolder { output: path, .. }
            | Self::FolderNotEmpty { folder: path }
            | Self::ParentNotAFolder { path }
            | Self::BlobLength { path, .. }
            | Self::BlobDamaged { path } => Place::file(path),
            Self::Compress { path, .. }
            | Self::NotLinked { entry: path }
            | Self::Fetch { entry: path, .. } => Place { record: Some(path.clone()), ..Place::default() },
            Self::Expansion { name, .. } => Place::tensor(name),
            _ => Place::default(),
        }
    }
}

fn last_kind(failures: &[remote_source::Error]) -> ErrorKind {
    failures.last().map_or(ErrorKind::Input, Detail::kind)
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

details! {
    TensorError {
        Option: NoName, DuplicateName, NameInIndex;
        Unsupported: Dtype, Print, TooLong;
    }
}

/// Adds the path of the carton or the folder that is read.
pub(crate) fn at<E: Into<Error>>(path: &Path) -> impl Fn(E) -> Error + '_ {
    move |error| error.into().in_file(path)
}

/// Converts errors while bytes of the carton at `path` are copied into `target`.
pub(crate) fn copying<'p>(path: &'p Path, target: &'p Path) -> impl Fn(Error) -> Error + 'p {
    move |error| match error.downcast() {
        Ok(carton_format::Problem::WriteOutput(reason)) => {
            FileError::Write { path: target.to_owned(), reason }.into()
        }
        Ok(problem) => at(path)(problem),
        Err(error) => at(path)(error),
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
