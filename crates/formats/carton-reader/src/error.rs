//! Why a carton or one of its files cannot be read.
//!
//! Facts: the Carton v1 specification, and `zip-index` for the zip file itself.

use std::io;
use std::path::PathBuf;

use byte_source::{Cancelled, Changed, ErrorKind};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is wrong with a carton, and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be mapped.
    #[error(transparent)]
    Map(#[from] byte_source::Error),
    /// The zip file is damaged or ambiguous.
    #[error("damaged zip file: {0}")]
    Zip(zip_index::Error),
    /// A document does not follow the specification.
    #[error(transparent)]
    Format(#[from] carton_format::Error),
    /// The model cannot be read.
    #[error("`{}`: {reason}", path.escape_debug())]
    Model {
        /// Its path in the carton.
        path: String,
        /// Why.
        reason: Box<torch_import::Error>,
    },
    /// A folder cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// The zip file changed while it was read.
    #[error(transparent)]
    Changed(Changed),
    /// The observer stopped the work.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// A file that is missing.
    #[error("there is no `{}` in the carton", path.escape_debug())]
    Missing {
        /// Its path in the carton.
        path: String,
    },
    /// A file that is left out and can be fetched.
    #[error("`{}` is not in the carton; LINKS says where to fetch it", path.escape_debug())]
    Elsewhere {
        /// Its path in the carton.
        path: String,
    },
    /// A path that leads out of the carton or has different meanings on different systems.
    #[error("`{}` is not a valid path in a carton: it has an empty part, `.`, `..`, a backslash, a colon or a control character, or is not UTF-8", path.escape_debug())]
    Path {
        /// The path.
        path: String,
    },
    /// A file of a folder whose name is not UTF-8.
    #[error("{}: its name is not UTF-8, as names in a carton must be", path.display())]
    Name {
        /// The path on this system.
        path: PathBuf,
    },
    /// Something in a folder that is neither file, folder nor link.
    #[error("`{}` is a pipe, a socket or a device, but a carton can only hold files", path.escape_debug())]
    NotAFile {
        /// Its path below the folder.
        path: String,
    },
    /// A file below a file.
    #[error("`{}` is a file, but `{}` is below it", path.escape_debug(), below.escape_debug())]
    FileAsFolder {
        /// The path that is both.
        path: String,
        /// The file below it.
        below: String,
    },
    /// A link outside of `model/`.
    #[error("`{}` is a link, which a carton can have only in model/", path.escape_debug())]
    LinkPlace {
        /// The link's path in the carton.
        path: String,
    },
    /// A link that leads out of `model/` or to nothing.
    #[error("the link `{}` leads to `{}`, which is not a file in model/", path.escape_debug(), target.escape_debug())]
    Link {
        /// The link's path in the carton.
        path: String,
        /// The path that it leads to.
        target: String,
    },
    /// An entry with a compression method that cartons do not use.
    #[error("`{}` is compressed with method {method}, cartons use 0, 8 and 93", path.escape_debug())]
    Method {
        /// Its path in the carton.
        path: String,
        /// The number of the method.
        method: u16,
    },
    /// An entry's data cannot be decompressed.
    #[error("`{}` cannot be decompressed: {reason}", path.escape_debug())]
    Decompress {
        /// Its path in the carton.
        path: String,
        /// Why.
        reason: String,
    },
    /// An entry whose length differs from the one in the directory.
    #[error("`{}` has {found} bytes{}, the directory says {expected}", path.escape_debug(), if *more { " or more" } else { "" })]
    Length {
        /// Its path in the carton.
        path: String,
        /// How many there are.
        found: u64,
        /// Whether there may be more.
        more: bool,
        /// How many there should be.
        expected: u64,
    },
    /// An entry's checksum is wrong.
    #[error("`{}` is damaged: its CRC-32 is {found:08x}, the zip file says {expected:08x}", path.escape_debug())]
    Checksum {
        /// Its path in the carton.
        path: String,
        /// The CRC-32 of its bytes.
        found: u32,
        /// The CRC-32 in the zip directory.
        expected: u32,
    },
    /// A file's hash is wrong.
    #[error("`{}` is damaged: its SHA-256 is {found}, MANIFEST says {expected}", path.escape_debug())]
    Hash {
        /// Its path in the carton.
        path: String,
        /// The hash of its bytes.
        found: String,
        /// The hash in MANIFEST.
        expected: String,
    },
    /// A file that MANIFEST does not list.
    #[error("`{}` is not listed in MANIFEST", path.escape_debug())]
    Unlisted {
        /// Its path in the carton.
        path: String,
    },
    /// A document that is too large to be one.
    #[error("`{}` has {found} bytes, more than the {limit} that a document may have", path.escape_debug())]
    Large {
        /// Its path in the carton.
        path: String,
        /// Its bytes.
        found: u64,
        /// The most that are read.
        limit: u64,
    },
    /// A document that is not text.
    #[error("`{}` is not UTF-8 text", path.escape_debug())]
    Text {
        /// Its path in the carton.
        path: String,
    },
    /// A name that the tensor index does not have.
    #[error("there is no tensor `{}` in tensor_data/index.toml", name.escape_debug())]
    NoTensor {
        /// The name.
        name: String,
    },
    /// A temporary file cannot be written.
    #[error("cannot decompress into a temporary file: {0}")]
    Spill(io::Error),
}

impl Error {
    /// Returns what the error means for a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Map(reason) => reason.kind(),
            Self::Zip(reason) => reason.kind(),
            Self::Format(reason) => reason.kind(),
            Self::Model { reason, .. } => reason.kind(),
            Self::Io { reason, .. } | Self::Spill(reason) => reason.into(),
            Self::Changed(_) => ErrorKind::Changed,
            Self::Cancelled(_) => ErrorKind::Cancelled,
            Self::Missing { .. }
            | Self::Elsewhere { .. }
            | Self::Name { .. }
            | Self::NotAFile { .. }
            | Self::NoTensor { .. } => ErrorKind::Input,
            Self::Method { .. } | Self::Large { .. } => ErrorKind::Unsupported,
            Self::Path { .. }
            | Self::FileAsFolder { .. }
            | Self::LinkPlace { .. }
            | Self::Link { .. }
            | Self::Decompress { .. }
            | Self::Length { .. }
            | Self::Checksum { .. }
            | Self::Hash { .. }
            | Self::Unlisted { .. }
            | Self::Text { .. } => ErrorKind::Damaged,
        }
    }
}

impl Error {
    /// The path in the carton that the error is about.
    pub fn entry(&self) -> Option<&str> {
        match self {
            Self::Model { path, .. }
            | Self::Missing { path }
            | Self::Elsewhere { path }
            | Self::Path { path }
            | Self::NotAFile { path }
            | Self::FileAsFolder { path, .. }
            | Self::LinkPlace { path }
            | Self::Link { path, .. }
            | Self::Method { path, .. }
            | Self::Decompress { path, .. }
            | Self::Length { path, .. }
            | Self::Checksum { path, .. }
            | Self::Hash { path, .. }
            | Self::Unlisted { path }
            | Self::Large { path, .. }
            | Self::Text { path } => Some(path),
            Self::Zip(error) => error.entry(),
            Self::Map(_)
            | Self::Format(_)
            | Self::Io { .. }
            | Self::Name { .. }
            | Self::NoTensor { .. }
            | Self::Changed(_)
            | Self::Spill(_)
            | Self::Cancelled(_) => None,
        }
    }
}
