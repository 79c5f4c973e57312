//! Errors in reading a carton or one of its files, and in printing its documents.
//!
//! Problems inside a document have a [`ProblemKind`](crate::ProblemKind).
//!
//! Facts: the Carton v1 specification, and `zip-format` for the zip file itself.

use std::io;
use std::path::{Path, PathBuf};

use byte_source::{Cancelled, ErrorKind};

use crate::problem::Problems;
use crate::spec::SHORT_DESCRIPTION_MAX;

/// Result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason why a carton or one of its files cannot be read, or a document cannot be printed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file that cannot be mapped.
    #[error(transparent)]
    Map(#[from] byte_source::FileError),
    /// A zip file that is damaged or ambiguous.
    #[error("damaged zip file: {0}")]
    Zip(zip_format::Error),
    /// A document that does not follow the specification.
    #[error("{0}")]
    Document(Problems),
    /// A `short_description` that is longer than the format allows.
    #[error("the short description has {found} characters, at most {SHORT_DESCRIPTION_MAX} are allowed")]
    ShortDescription {
        /// Length of the description in characters.
        found: usize,
    },
    /// A path with a line break, which a manifest line cannot hold.
    #[error("`{}` cannot be listed in MANIFEST: the path contains a line break", path.escape_debug())]
    ManifestPath { path: String },
    /// Two files with the same path.
    #[error("two files of the carton have the path `{}`", path.escape_debug())]
    Duplicate { path: String },
    /// A document that TOML cannot express.
    #[error("cannot print {document}: {reason}")]
    Print {
        /// File name of the document.
        document: &'static str,
        /// Error text of the TOML library.
        reason: String,
    },
    /// A file or folder that cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Io {
        path: PathBuf,
        /// Error of the operating system.
        reason: io::Error,
    },
    /// A file that cannot be read or changed while it was read, or work that the observer stopped.
    #[error(transparent)]
    Located(#[from] byte_source::Error),
    /// A file that is not in the carton.
    #[error("there is no `{}` in the carton", path.escape_debug())]
    Missing {
        /// Path in the carton.
        path: String,
    },
    /// A file that is left out of the carton and can be fetched.
    #[error("`{}` is not in the carton; LINKS says where to fetch it", path.escape_debug())]
    NotFetched {
        /// Path in the carton.
        path: String,
    },
    /// A path that leads out of the carton or has different meanings on different systems.
    #[error("`{}` is not a valid path in a carton: it has an empty part, `.`, `..`, a backslash, a colon or a control character, or is not UTF-8", path.escape_debug())]
    InvalidPath { path: String },
    /// A file in a folder whose name is not UTF-8.
    #[error("{}: its name is not UTF-8, as names in a carton must be", path.display())]
    NameNotUtf8 {
        /// Path on this system.
        path: PathBuf,
    },
    /// An item of a folder that is neither a file, a folder nor a link.
    #[error("`{}` is a pipe, a socket or a device, but a carton can only hold files", path.escape_debug())]
    NotAFile {
        /// Path below the folder.
        path: String,
    },
    /// A file whose path is also a folder of another file.
    #[error("`{}` is a file, but `{}` is below it", path.escape_debug(), below.escape_debug())]
    FileAsFolder {
        /// Path of the file.
        path: String,
        /// Path below the file.
        below: String,
    },
    /// A link outside of `model/`.
    #[error("`{}` is a link, which a carton can have only in model/", path.escape_debug())]
    LinkOutsideModel {
        /// Path of the link in the carton.
        path: String,
    },
    /// A link that leads out of `model/` or to nothing.
    #[error("the link `{}` leads to `{}`, which is not a file in model/", path.escape_debug(), target.escape_debug())]
    BrokenLink {
        /// Path of the link in the carton.
        path: String,
        /// Target of the link.
        target: String,
    },
    /// An entry with a compression method that cartons do not use.
    #[error("`{}` is compressed with method {method}, cartons use 0, 8 and 93", path.escape_debug())]
    Method {
        /// Path in the carton.
        path: String,
        /// Number of the method in the zip format.
        method: u16,
    },
    /// An entry whose data cannot be decompressed.
    #[error("`{}` cannot be decompressed: {reason}", path.escape_debug())]
    Decompress {
        /// Path in the carton.
        path: String,
        reason: String,
    },
    /// An entry whose length differs from the length in the directory.
    #[error("`{}` has {found} bytes{}, the directory says {expected}", path.escape_debug(), if *is_at_least { " or more" } else { "" })]
    Length {
        /// Path in the carton.
        path: String,
        /// Number of bytes read.
        found: u64,
        /// True if there may be further bytes.
        is_at_least: bool,
        /// Length in bytes in the directory.
        expected: u64,
    },
    /// An entry whose CRC-32 differs from the directory.
    #[error("`{}` is damaged: its CRC-32 is {found:08x}, the zip file says {expected:08x}", path.escape_debug())]
    Checksum {
        /// Path in the carton.
        path: String,
        /// CRC-32 of the entry's bytes.
        found: u32,
        /// CRC-32 in the zip directory.
        expected: u32,
    },
    /// A file whose SHA-256 differs from MANIFEST.
    #[error("`{}` is damaged: its SHA-256 is {found}, MANIFEST says {expected}", path.escape_debug())]
    Hash {
        /// Path in the carton.
        path: String,
        /// SHA-256 of the file's bytes.
        found: String,
        /// SHA-256 listed in MANIFEST.
        expected: String,
    },
    /// A file that MANIFEST does not list.
    #[error("`{}` is not listed in MANIFEST", path.escape_debug())]
    Unlisted {
        /// Path in the carton.
        path: String,
    },
    /// A document or link target that exceeds the size limit.
    #[error("`{}` has {found} bytes, more than the {limit} that a document may have", path.escape_debug())]
    OversizedDocument {
        /// Path in the carton.
        path: String,
        /// Length of the file in bytes.
        found: u64,
        /// Maximum length in bytes of such a file.
        limit: u64,
    },
    /// A document that is not UTF-8.
    #[error("`{}` is not UTF-8 text", path.escape_debug())]
    TextNotUtf8 {
        /// Path in the carton.
        path: String,
    },
    /// A tensor that the tensor index does not list.
    #[error("there is no tensor `{}` in tensor_data/index.toml", name.escape_debug())]
    NoTensor { name: String },
    /// A temporary file or other output that cannot be written.
    #[error("cannot decompress into a temporary file: {0}")]
    WriteOutput(io::Error),
}

impl Error {
    /// Returns the kind of error, which tells the caller how to react.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Map(reason) => reason.into(),
            Self::Zip(reason) => reason.into(),
            Self::Io { reason, .. } | Self::WriteOutput(reason) => reason.into(),
            Self::Located(reason) => reason.kind(),
            Self::Missing { .. }
            | Self::NotFetched { .. }
            | Self::NameNotUtf8 { .. }
            | Self::NotAFile { .. }
            | Self::NoTensor { .. }
            | Self::ManifestPath { .. }
            | Self::Duplicate { .. } => ErrorKind::Input,
            Self::ShortDescription { .. } => ErrorKind::Option,
            Self::Method { .. } | Self::OversizedDocument { .. } | Self::Print { .. } => {
                ErrorKind::Unsupported
            }
            Self::Document(_)
            | Self::InvalidPath { .. }
            | Self::FileAsFolder { .. }
            | Self::LinkOutsideModel { .. }
            | Self::BrokenLink { .. }
            | Self::Decompress { .. }
            | Self::Length { .. }
            | Self::Checksum { .. }
            | Self::Hash { .. }
            | Self::Unlisted { .. }
            | Self::TextNotUtf8 { .. } => ErrorKind::Damaged,
        }
    }
}

impl Error {
    /// Returns the text after the path of the carton, unless it names its file. The problems of a document are counted.
    pub fn text_at(&self, carton: &Path) -> String {
        match self {
            Self::Map(_) | Self::Io { .. } => self.to_string(),
            Self::Located(error) if error.location().path.is_some() => self.to_string(),
            Self::Document(problems) => format!("{}: {}", carton.display(), problems.count_text()),
            error => format!("{}: {error}", carton.display()),
        }
    }

    /// Returns the path in the carton that the error is about; `None` if there is none.
    pub fn entry(&self) -> Option<&str> {
        match self {
            Self::Missing { path }
            | Self::NotFetched { path }
            | Self::InvalidPath { path }
            | Self::NotAFile { path }
            | Self::FileAsFolder { path, .. }
            | Self::LinkOutsideModel { path }
            | Self::BrokenLink { path, .. }
            | Self::Method { path, .. }
            | Self::Decompress { path, .. }
            | Self::Length { path, .. }
            | Self::Checksum { path, .. }
            | Self::Hash { path, .. }
            | Self::Unlisted { path }
            | Self::OversizedDocument { path, .. }
            | Self::TextNotUtf8 { path } => Some(path),
            Self::Zip(error) => error.entry(),
            Self::Map(_)
            | Self::Document(_)
            | Self::ShortDescription { .. }
            | Self::ManifestPath { .. }
            | Self::Duplicate { .. }
            | Self::Print { .. }
            | Self::Io { .. }
            | Self::NameNotUtf8 { .. }
            | Self::NoTensor { .. }
            | Self::WriteOutput(_)
            | Self::Located(_) => None,
        }
    }
}

impl From<Cancelled> for Error {
    fn from(cancelled: Cancelled) -> Self {
        Self::Located(cancelled.into())
    }
}

/// Converts an error of opening a file.
pub(crate) fn file_error(error: byte_source::Error) -> Error {
    error.downcast().map_or_else(Error::Located, Error::Map)
}

/// Converts an error of reading a zip file.
pub(crate) fn zip_error(error: byte_source::Error) -> Error {
    error.downcast().map_or_else(Error::Located, Error::Zip)
}
