//! What can be wrong with a zip file.

use byte_source::ErrorKind;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is wrong with a zip file, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file does not end with an end-of-central-directory record.
    #[error("no end of central directory in {len} bytes: the file is cut short or is not a zip file")]
    NoEnd {
        /// Bytes of the file.
        len: u64,
    },
    /// A record is outside the file or does not start with its signature.
    #[error("no {record} at offset 0x{offset:x}")]
    NoRecord {
        /// The record that should be there.
        record: &'static str,
        /// Where, in bytes from the file's start.
        offset: u64,
    },
    /// The file is neither in memory nor mapped.
    #[error("the file is neither in memory nor mapped")]
    NotInMemory,
    /// The directory of a file that is not in memory does not fit into it.
    #[error("the directory has {len} bytes, expected at most {max}")]
    LongDirectory {
        /// Bytes of the directory.
        len: u64,
        /// The most bytes that are read.
        max: u64,
    },
    /// The system cannot read a local header or the directory.
    #[error("cannot read the record at offset 0x{offset:x}: {reason}")]
    Unread {
        /// Where it starts, in bytes from the file's start.
        offset: u64,
        /// The system's error.
        reason: String,
    },
    /// An entry of the directory has no local header.
    #[error("entry `{}` has no local header at offset 0x{offset:x}", name.escape_debug())]
    NoLocal {
        /// The entry.
        name: String,
        /// Where it should be, in bytes from the file's start.
        offset: u64,
    },
    /// Two records disagree.
    #[error("{what} is {found} at offset 0x{offset:x}, expected {expected}")]
    Disagreement {
        /// What they disagree on.
        what: &'static str,
        /// The value that the other records imply.
        expected: u64,
        /// The value in this record.
        found: u64,
        /// Where this record starts.
        offset: u64,
    },
    /// The name in a local header differs from the one in the directory.
    #[error("entry `{}` is called `{}` in its local header at offset 0x{offset:x}", central.escape_debug(), local.escape_debug())]
    Renamed {
        /// The name in the directory.
        central: String,
        /// The name in the local header.
        local: String,
        /// Where the local header starts.
        offset: u64,
    },
    /// A local header and the directory disagree on a number.
    #[error("entry `{}`: {what} is {local} in its local header at offset 0x{offset:x} and {central} in the directory", name.escape_debug())]
    Local {
        /// The entry.
        name: String,
        /// What they disagree on.
        what: &'static str,
        /// The number in the directory.
        central: u64,
        /// The number in the local header.
        local: u64,
        /// Where the local header starts.
        offset: u64,
    },
    /// An entry reaches past the place where the directory starts.
    #[error("entry `{}` ends at offset 0x{end:x}, past the end of the entries at 0x{limit:x}", name.escape_debug())]
    PastEnd {
        /// The entry.
        name: String,
        /// Where its data end.
        end: u64,
        /// Where the directory starts.
        limit: u64,
    },
    /// Two entries share bytes.
    #[error("entries `{}` and `{}` overlap at offset 0x{offset:x}", first.escape_debug(), second.escape_debug())]
    Overlap {
        /// The entry that starts first.
        first: String,
        /// The entry that starts inside it.
        second: String,
        /// Where the second starts.
        offset: u64,
    },
    /// Two entries have the same name.
    #[error("entry `{}` appears twice, at offsets 0x{first:x} and 0x{second:x}", name.escape_debug())]
    Duplicate {
        /// The name.
        name: String,
        /// Where the first local header starts.
        first: u64,
        /// Where the second local header starts.
        second: u64,
    },
    /// A name that leads out of the folder it is unpacked into.
    #[error("entry `{}` has a path that leads out of the archive", name.escape_debug())]
    Path {
        /// The name.
        name: String,
    },
    /// An entry is encrypted.
    #[error("entry `{}` is encrypted", name.escape_debug())]
    Encrypted {
        /// The entry.
        name: String,
    },
    /// An entry is the difference to another file.
    #[error("entry `{}` is a patch of a file that is not in the archive", name.escape_debug())]
    Patch {
        /// The entry.
        name: String,
    },
    /// An extra field has two zip64 fields, of which readers use one or the other.
    #[error("entry `{}` has two zip64 fields, expected one", name.escape_debug())]
    TwoZip64 {
        /// The entry.
        name: String,
    },
    /// An extra field has another name, which some readers use.
    #[error("entry `{}` has a second name, `{}`", name.escape_debug(), other.escape_debug())]
    TwoNames {
        /// The name in the header.
        name: String,
        /// The name in the extra field.
        other: String,
    },
    /// An archive that is split over several files.
    #[error("the archive is split over several disks, which is not supported")]
    Disks,
}

impl Error {
    /// Returns what the error means for a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Encrypted { .. } | Self::Patch { .. } | Self::Disks | Self::LongDirectory { .. } => {
                ErrorKind::Unsupported
            }
            Self::NotInMemory | Self::Unread { .. } => ErrorKind::Io,
            Self::NoEnd { .. }
            | Self::NoRecord { .. }
            | Self::NoLocal { .. }
            | Self::Disagreement { .. }
            | Self::Renamed { .. }
            | Self::Local { .. }
            | Self::PastEnd { .. }
            | Self::Overlap { .. }
            | Self::Duplicate { .. }
            | Self::Path { .. }
            | Self::TwoZip64 { .. }
            | Self::TwoNames { .. } => ErrorKind::Damaged,
        }
    }
}

impl Error {
    /// The entry that the error is about.
    pub fn entry(&self) -> Option<&str> {
        match self {
            Self::NoLocal { name, .. }
            | Self::Renamed { central: name, .. }
            | Self::Local { name, .. }
            | Self::PastEnd { name, .. }
            | Self::Overlap { first: name, .. }
            | Self::Duplicate { name, .. }
            | Self::Path { name }
            | Self::Encrypted { name }
            | Self::Patch { name }
            | Self::TwoZip64 { name }
            | Self::TwoNames { name, .. } => Some(name),
            Self::NoEnd { .. }
            | Self::NoRecord { .. }
            | Self::NotInMemory
            | Self::LongDirectory { .. }
            | Self::Unread { .. }
            | Self::Disagreement { .. }
            | Self::Disks => None,
        }
    }
}
