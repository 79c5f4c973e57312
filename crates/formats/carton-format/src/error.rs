//! Errors in reading a carton or one of its files, and in printing its documents.
//!
//! Problems inside a document have a [`ProblemKind`](crate::ProblemKind).
//!
//! Facts: the Carton v1 specification, and `zip-format` for the zip file itself.

use std::io;

use byte_source::{Place, details};

use crate::problem::DocumentProblems;
use crate::spec::SHORT_DESCRIPTION_MAX;

/// Reason why a carton or one of its files cannot be read, or a document cannot be printed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A zip file that is damaged or ambiguous.
    #[error("damaged zip file: {0}")]
    Zip(zip_format::Error),
    /// A document that does not follow the specification.
    #[error("{0}")]
    Document(DocumentProblems),
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
    #[error("its name is not UTF-8, as names in a carton must be")]
    NameNotUtf8,
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
    /// An entry whose CRC-32 differs from the directory, or whose SHA-256 differs from MANIFEST.
    #[error("`{}` is damaged: its {sum} is {found}, {listed_in} says {expected}", path.escape_debug())]
    Damaged {
        /// Path in the carton.
        path: String,
        /// Name of the checksum.
        sum: &'static str,
        /// Checksum of the entry's bytes.
        found: String,
        /// What lists the checksum.
        listed_in: &'static str,
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

details! {
    Problem => Problem::place {
        Input: Missing, NotFetched, NameNotUtf8, NotAFile, NoTensor, ManifestPath, Duplicate;
        Option: ShortDescription;
        Unsupported: Method, OversizedDocument, Print;
        Damaged: Document, InvalidPath, FileAsFolder, LinkOutsideModel, BrokenLink, Decompress, Length, Damaged, Unlisted,
            TextNotUtf8;
        [0]: Zip, WriteOutput;
    }
}

impl Problem {
    /// Returns the path in the carton, as the place of the problem.
    fn place(&self) -> Place {
        let record = match self {
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
            | Self::Damaged { path, .. }
            | Self::Unlisted { path }
            | Self::OversizedDocument { path, .. }
            | Self::TextNotUtf8 { path } => Some(path.clone()),
            Self::Zip(error) => error.entry().map(str::to_owned),
            Self::NoTensor { name } => return Place::tensor(name),
            Self::Document(_)
            | Self::ShortDescription { .. }
            | Self::ManifestPath { .. }
            | Self::Duplicate { .. }
            | Self::Print { .. }
            | Self::NameNotUtf8
            | Self::WriteOutput(_) => None,
        };
        Place { record, ..Place::default() }
    }
}

/// Converts an error of reading a zip file.
pub(crate) fn zip_error(error: byte_source::Error) -> byte_source::Error {
    error.downcast().map_or_else(|error| error, |error| Problem::Zip(error).into())
}
