//! Errors of reading a zip file.

use byte_source::details;

/// Result type with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error in a zip file, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file does not end with an end-of-central-directory record.
    #[error("no end of central directory in {len} bytes: the file is cut short or is not a zip file")]
    NoEnd {
        /// Length of the file in bytes.
        len: u64,
    },
    /// A record is outside the file or does not start with its signature.
    #[error("no {record} at offset 0x{offset:x}")]
    NoRecord {
        /// Name of the missing record.
        record: &'static str,
        /// Expected byte offset of the record.
        offset: u64,
    },
    /// The directory of a file that is not in memory is too long to read.
    #[error("the directory has {len} bytes, expected at most {max}")]
    DirectoryTooLong {
        /// Length of the directory in bytes.
        len: u64,
        /// Maximum length in bytes.
        max: u64,
    },
    /// An entry of the directory has no local header.
    #[error("entry `{}` has no local header at offset 0x{offset:x}", name.escape_debug())]
    NoLocal {
        name: String,
        /// Expected byte offset of the local header.
        offset: u64,
    },
    /// Two records disagree on a number.
    #[error("{what} is {found} at offset 0x{offset:x}, expected {expected}")]
    Disagreement {
        /// Description of the number in question.
        what: &'static str,
        /// Value that the other records imply.
        expected: u64,
        /// Value in this record.
        found: u64,
        /// Byte offset of this record.
        offset: u64,
    },
    /// The name in a local header differs from the one in the directory.
    #[error("entry `{}` is called `{}` in its local header at offset 0x{offset:x}", central.escape_debug(), local.escape_debug())]
    NameMismatch {
        /// Name in the directory.
        central: String,
        /// Name in the local header.
        local: String,
        /// Byte offset of the local header.
        offset: u64,
    },
    /// A local header and the directory disagree on a number.
    #[error("entry `{}`: {what} is {local} in its local header at offset 0x{offset:x} and {central} in the directory", name.escape_debug())]
    HeaderMismatch {
        name: String,
        /// Description of the number in question.
        what: &'static str,
        /// Value in the directory.
        central: u64,
        /// Value in the local header.
        local: u64,
        /// Byte offset of the local header.
        offset: u64,
    },
    /// The data of an entry end after the start of the directory.
    #[error("entry `{}` ends at offset 0x{end:x}, past the end of the entries at 0x{limit:x}", name.escape_debug())]
    PastEnd {
        name: String,
        /// Byte offset of the end of the data.
        end: u64,
        /// Byte offset of the directory.
        limit: u64,
    },
    /// The byte ranges of two entries overlap.
    #[error("entries `{}` and `{}` overlap at offset 0x{offset:x}", first.escape_debug(), second.escape_debug())]
    Overlap {
        /// Name of the entry with the smaller offset.
        first: String,
        /// Name of the entry that starts inside the first entry.
        second: String,
        /// Byte offset of the second entry.
        offset: u64,
    },
    /// Two entries have the same name.
    #[error("entry `{}` appears twice, at offsets 0x{first:x} and 0x{second:x}", name.escape_debug())]
    Duplicate {
        name: String,
        /// Byte offset of the first local header.
        first: u64,
        /// Byte offset of the second local header.
        second: u64,
    },
    /// The path of an entry leads out of the folder into which the archive is unpacked.
    #[error("entry `{}` has a path that leads out of the archive", name.escape_debug())]
    UnsafePath { name: String },
    /// The data of an entry are encrypted.
    #[error("entry `{}` is encrypted", name.escape_debug())]
    Encrypted { name: String },
    /// An entry is a patch of a file outside the archive.
    #[error("entry `{}` is a patch of a file that is not in the archive", name.escape_debug())]
    Patch { name: String },
    /// An extra field has two zip64 fields; some readers use the first, other readers the last.
    #[error("entry `{}` has two zip64 fields, expected one", name.escape_debug())]
    DuplicateZip64 { name: String },
    /// An extra field has a second name, which some readers use.
    #[error("entry `{}` has a second name, `{}`", name.escape_debug(), other.escape_debug())]
    SecondName {
        /// Name in the header.
        name: String,
        /// Name in the extra field.
        other: String,
    },
    /// The archive is split over several files (disks).
    #[error("the archive is split over several disks, which is not supported")]
    MultipleDisks,
}

details! {
    Error {
        Unsupported: Encrypted, Patch, MultipleDisks, DirectoryTooLong;
        Damaged: NoEnd, NoRecord, NoLocal, Disagreement, NameMismatch, HeaderMismatch, PastEnd, Overlap, Duplicate, UnsafePath,
            DuplicateZip64, SecondName;
    }
}

impl Error {
    /// Returns the name of the entry with the error.
    pub fn entry(&self) -> Option<&str> {
        match self {
            Self::NoLocal { name, .. }
            | Self::NameMismatch { central: name, .. }
            | Self::HeaderMismatch { name, .. }
            | Self::PastEnd { name, .. }
            | Self::Overlap { first: name, .. }
            | Self::Duplicate { name, .. }
            | Self::UnsafePath { name }
            | Self::Encrypted { name }
            | Self::Patch { name }
            | Self::DuplicateZip64 { name }
            | Self::SecondName { name, .. } => Some(name),
            _ => None,
        }
    }
}
