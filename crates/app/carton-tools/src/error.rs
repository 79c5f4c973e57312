//! Why the work on a carton cannot be done.
//!
//! The texts are whole: they contain their causes, and say what is wrong. The program that prints them adds what can
//! be done about it.

use std::io;
use std::path::{Path, PathBuf};

use byte_source::{Cancelled, ErrorKind, ReadError};
use carton_format::{Problems, TensorIndex};
use tensor::Dtype;

use crate::NpyError;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the work on a carton cannot be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The observer stopped the work.
    #[error("stopped")]
    Cancelled,
    /// A checkpoint cannot be read or selected from, or a carton cannot be written.
    #[error("{0}")]
    Pipeline(#[source] Box<pipeline::Error>),
    /// A path is not one that can be read or written.
    #[error("{0}")]
    Store(#[source] output::Error),
    /// A carton cannot be read.
    #[error("{}", reader_text(path, reason))]
    Reader {
        /// The carton, or the folder that becomes one.
        path: PathBuf,
        /// What is wrong.
        #[source]
        reason: carton_reader::Error,
    },
    /// A document does not follow Carton's specification.
    #[error("{}: {}", path.display(), pipeline::problems(problems.0.len()))]
    Document {
        /// The carton, or the folder that becomes one.
        path: PathBuf,
        /// The problems.
        problems: Problems,
    },
    /// A file is a checkpoint, not a carton.
    #[error("{} is a checkpoint ({format}), not a carton", path.display())]
    IsCheckpoint {
        /// The file.
        path: PathBuf,
        /// The name of its format.
        format: &'static str,
    },
    /// A file is neither a carton nor a checkpoint.
    #[error("{} is not a carton", path.display())]
    NotACarton {
        /// The file.
        path: PathBuf,
    },
    /// A folder where only a packed carton can be used.
    #[error("{} is a folder, not a packed carton", path.display())]
    IsFolder {
        /// The folder.
        path: PathBuf,
    },
    /// Something else where a folder is needed.
    #[error("{} is not a folder", path.display())]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// A folder cannot be created.
    #[error("cannot create the folder {}: {reason}", path.display())]
    CreateFolder {
        /// The folder.
        path: PathBuf,
        /// What the system reported.
        reason: io::Error,
    },
    /// A file cannot be opened, read or written.
    #[error("{}: {reason}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system reported.
        reason: io::Error,
    },
    /// A file cannot be read, or changed while it was read. The cause names the file.
    #[error("{0}")]
    Read(#[source] io::Error),
    /// A file cannot be mapped.
    #[error("{0}")]
    Map(#[source] byte_source::Error),
    /// A document of the carton cannot be made.
    #[error("{0}")]
    Format(#[source] carton_format::Error),

    /// The output is in the folder that is packed.
    #[error("the output {} is in the folder that is packed, {}", output.display(), folder.display())]
    OutputInFolder {
        /// The output.
        output: PathBuf,
        /// The folder.
        folder: PathBuf,
    },
    /// A file that the format has no place for.
    #[error(
        "{}: `{}` has no place in a carton, which holds carton.toml, model/, tensor_data/ and misc/",
        folder.display(),
        path.escape_debug()
    )]
    NoPlace {
        /// The folder that is packed.
        folder: PathBuf,
        /// The file's path in it.
        path: String,
    },
    /// A folder without a model.
    #[error("{}: there is no file in model/", folder.display())]
    NoModel {
        /// The folder that is packed.
        folder: PathBuf,
    },
    /// A link leads to a file that is not packed.
    #[error("{}: a link leads to `{}`, which is not packed", folder.display(), target.escape_debug())]
    LinkNotPacked {
        /// The folder that is packed.
        folder: PathBuf,
        /// The path that the link leads to.
        target: String,
    },
    /// An array cannot be added as a tensor.
    #[error("tensor `{}`: {reason}", name.escape_debug())]
    Tensor {
        /// The tensor.
        name: String,
        /// What is wrong.
        #[source]
        reason: TensorError,
    },
    /// An array cannot be read.
    #[error("{}: {reason}", path.display())]
    Npy {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        reason: NpyError,
    },
    /// A tensor whose dtype NumPy does not have, nor one that has its numbers.
    #[error("tensor `{}`: NumPy has no {dtype}", name.escape_debug())]
    NoNumpyDtype {
        /// The tensor.
        name: String,
        /// Its dtype.
        dtype: Dtype,
    },
    /// A file cannot be compressed.
    #[error("cannot compress `{}`: {reason}", path.escape_debug())]
    Compress {
        /// Its path in the carton.
        path: String,
        /// What the system reported.
        reason: io::Error,
    },

    /// The folder that would be made for the files is there and has files.
    #[error("the folder {} exists and is not empty", folder.display())]
    FolderNotEmpty {
        /// The folder.
        folder: PathBuf,
    },
    /// Files that would be replaced.
    #[error("these files exist: {}", list(paths))]
    FilesExist {
        /// Their paths.
        paths: Vec<PathBuf>,
    },
    /// A file would be written through something that is not a folder, such as a link.
    #[error("cannot write into {}: it is not a folder", path.display())]
    ParentNotAFolder {
        /// What is there.
        path: PathBuf,
    },

    /// Options choose tensors of a checkpoint, and no checkpoint is given.
    #[error("tensors of a checkpoint are selected, but there is no checkpoint to compare with")]
    NoCheckpoint,

    /// A URL that files cannot be below.
    #[error("`{}` is not an http or https URL without a query", url.escape_debug())]
    BaseUrl {
        /// The URL as it was given.
        url: String,
    },
    /// A blob that is there does not have the bytes of the file with that hash.
    #[error("{} has {found} bytes, but the file with that hash has {expected}", path.display())]
    BlobLength {
        /// The blob.
        path: PathBuf,
        /// Its bytes.
        found: u64,
        /// The bytes of the carton's file.
        expected: u64,
    },
    /// A blob that is there does not have the hash that is its name.
    #[error("{} is damaged: its SHA-256 is not its name", path.display())]
    BlobDamaged {
        /// The blob.
        path: PathBuf,
    },
    /// A file that is in MANIFEST, but neither in the carton nor in LINKS.
    #[error("{}: MANIFEST lists `{}`, which is neither in the carton nor in LINKS", path.display(), entry.escape_debug())]
    NotLinked {
        /// The carton.
        path: PathBuf,
        /// The file's path in it.
        entry: String,
    },
    /// None of the URLs of a file works.
    #[error("{}: cannot fetch `{}`: {}", path.display(), entry.escape_debug(), failure_list(failures))]
    Fetch {
        /// The carton.
        path: PathBuf,
        /// The file's path in it.
        entry: String,
        /// What went wrong, for each URL in turn.
        failures: Vec<output::Error>,
    },
}

impl Error {
    /// Returns what the error means for a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Cancelled => ErrorKind::Cancelled,
            Self::Pipeline(reason) => reason.kind(),
            Self::Store(reason) => reason.kind(),
            Self::Reader { reason, .. } => reason.kind(),
            Self::Map(reason) => reason.kind(),
            Self::Format(reason) => reason.kind(),
            Self::Tensor { reason, .. } => reason.kind(),
            Self::Npy { reason, .. } => reason.kind(),
            Self::CreateFolder { reason, .. }
            | Self::Io { reason, .. }
            | Self::Read(reason)
            | Self::Compress { reason, .. } => reason.into(),
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
            Self::OutputInFolder { .. } | Self::NoCheckpoint | Self::BaseUrl { .. } => ErrorKind::Option,
            Self::NoNumpyDtype { .. } => ErrorKind::Unsupported,
            Self::Document { .. }
            | Self::BlobLength { .. }
            | Self::BlobDamaged { .. }
            | Self::NotLinked { .. } => ErrorKind::Damaged,
            Self::Fetch { failures, .. } => failures.last().map_or(ErrorKind::Input, output::Error::kind),
        }
    }
}

/// Why an array cannot be added as a tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// Its name is empty.
    #[error("the name cannot be empty")]
    NoName,
    /// Another array has its name.
    #[error("two arrays have this name")]
    Twice,
    /// A tensor of the folder has its name.
    #[error("{} already has a tensor of this name", TensorIndex::PATH)]
    InIndex,
    /// Carton does not have its dtype.
    #[error("Carton has no {0}")]
    Dtype(Dtype),
    /// Its strings cannot be expressed.
    #[error("its strings cannot be printed as TOML: {0}")]
    Print(String),
    /// Its strings take more bytes than a reader accepts.
    #[error("its strings take {found} bytes, more than the {limit} that a document may have")]
    TooLong {
        /// The bytes that they take.
        found: usize,
        /// The most that are read.
        limit: u64,
    },
}

impl TensorError {
    /// Returns what the error means for a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoName | Self::Twice | Self::InIndex => ErrorKind::Option,
            Self::Dtype(_) | Self::Print(_) | Self::TooLong { .. } => ErrorKind::Unsupported,
        }
    }
}

impl Error {
    /// An error of the reader, while the carton or the folder at `path` is read.
    pub fn reader(path: &Path) -> impl Fn(carton_reader::Error) -> Self + '_ {
        use carton_reader::Error::{Changed, Format};
        move |error| match error {
            Changed(changed) => pipeline::Error::Changed(changed).into(),
            Format(carton_format::Error::Document(problems)) => {
                Self::Document { path: path.to_owned(), problems }
            }
            carton_reader::Error::Cancelled(cancelled) => cancelled.into(),
            reason => Self::Reader { path: path.to_owned(), reason },
        }
    }

    /// The same, where the carton's bytes are copied into `target`.
    pub(crate) fn copying<'p>(
        path: &'p Path,
        target: &'p Path,
    ) -> impl Fn(carton_reader::Error) -> Self + 'p {
        move |error| match error {
            carton_reader::Error::Spill(reason) => {
                Self::Store(output::Error::Write { path: target.to_owned(), reason })
            }
            error => Self::reader(path)(error),
        }
    }

    /// An error of the system at the file at `path`.
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Self + '_ {
        move |reason| Self::Io { path: path.to_owned(), reason }
    }

    /// An error of a blob, whose text names its file.
    pub(crate) fn read(reason: ReadError) -> Self {
        pipeline::Error::of_read(reason, Self::Read)
    }

    /// An error of a tensor's elements.
    pub(crate) fn elements(name: &str, reason: ReadError) -> Self {
        let named = |reason| pipeline::Error::ReadTensor { name: name.to_owned(), reason };
        pipeline::Error::of_read(reason, |reason| Self::from(named(reason)))
    }

    pub(crate) fn tensor(name: &str, reason: TensorError) -> Self {
        Self::Tensor { name: name.to_owned(), reason }
    }
}

impl From<Cancelled> for Error {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

impl From<pipeline::Error> for Error {
    fn from(error: pipeline::Error) -> Self {
        match error {
            pipeline::Error::Cancelled => Self::Cancelled,
            error => Self::Pipeline(Box::new(error)),
        }
    }
}

impl From<output::Error> for Error {
    fn from(error: output::Error) -> Self {
        match error {
            output::Error::Cancelled(_) => Self::Cancelled,
            error => Self::Store(error),
        }
    }
}

impl From<checkpoint_files::Error> for Error {
    fn from(error: checkpoint_files::Error) -> Self {
        pipeline::Error::from(error).into()
    }
}

/// Errors of the file itself name it already.
fn reader_text(path: &Path, reason: &carton_reader::Error) -> String {
    match reason {
        carton_reader::Error::Map(_) | carton_reader::Error::Io { .. } => reason.to_string(),
        reason => format!("{}: {reason}", path.display()),
    }
}

fn list(paths: &[PathBuf]) -> String {
    /// The most paths that are named.
    const SHOWN: usize = 5;
    let mut names: Vec<String> = paths.iter().take(SHOWN).map(|path| path.display().to_string()).collect();
    if paths.len() > SHOWN {
        names.push(format!("{} more", paths.len().saturating_sub(SHOWN)));
    }
    names.join(", ")
}

fn failure_list(failures: &[output::Error]) -> String {
    failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
