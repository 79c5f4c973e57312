//! Why bytes could not be fetched or written.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use byte_source::{Cancelled, ErrorKind};

use crate::Remote;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What could not be fetched or written, and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A path is the address of a file elsewhere.
    #[error("{} is not a local path", path.display())]
    Remote {
        /// The path as it was typed.
        path: PathBuf,
        /// The address that it spells.
        address: Remote,
    },

    /// The folder of an output does not exist.
    #[error("cannot write {}: the folder {} does not exist", path.display(), folder.display())]
    NoFolder {
        /// The output.
        path: PathBuf,
        /// The folder that is missing.
        folder: PathBuf,
    },
    /// An output is a folder.
    #[error("cannot write {}: it is a folder", path.display())]
    IsFolder {
        /// The output.
        path: PathBuf,
    },
    /// An output is a pipe, a socket or a device.
    #[error("cannot write {}: it is a pipe or a device", path.display())]
    NotAFile {
        /// The output.
        path: PathBuf,
    },
    /// An output is one of the inputs, by whatever path or link.
    #[error("the output {} is the input {}", output.display(), input.display())]
    SameFile {
        /// The output as it was typed.
        output: PathBuf,
        /// The input as it was typed.
        input: PathBuf,
    },
    /// An output exists and must not be replaced.
    #[error("{} exists", path.display())]
    Exists {
        /// The output.
        path: PathBuf,
    },
    /// An output exists, and nothing says that this program wrote it.
    #[error("cannot replace {}: it was not written by torch2carton, or was changed or copied since", path.display())]
    NotOurs {
        /// The output.
        path: PathBuf,
    },
    /// No file or folder can be created in a folder.
    #[error("cannot write into {}: {kind}", folder.display())]
    CreateIn {
        /// The folder.
        folder: PathBuf,
        /// What the system reported. The rest of its error names a temporary file that nobody asked for.
        kind: io::ErrorKind,
    },
    /// A file cannot be written, synced or renamed.
    #[error("cannot write {}: {reason}", path.display())]
    Write {
        /// The output.
        path: PathBuf,
        /// What the system reported.
        reason: io::Error,
    },
    /// The files in a folder cannot be synced.
    #[error("cannot write into {}: {reason}", folder.display())]
    Sync {
        /// The folder.
        folder: PathBuf,
        /// What the system reported.
        reason: io::Error,
    },
    /// The system does not report how much space is free.
    #[error("cannot ask for the free space in {}: {reason}", folder.display())]
    FreeSpace {
        /// The folder.
        folder: PathBuf,
        /// What the system reported.
        reason: io::Error,
    },
    /// There is not enough space.
    #[error("needs {needed} bytes in {}, {free} free", folder.display())]
    NoSpace {
        /// Bytes that will be written.
        needed: u64,
        /// Bytes that are free.
        free: u64,
        /// The folder.
        folder: PathBuf,
    },

    /// A URL cannot be parsed.
    #[error("`{}` is no URL: {reason}", url.escape_debug())]
    NotAUrl {
        /// The text.
        url: String,
        /// What is wrong with it.
        reason: url::ParseError,
    },
    /// A URL is neither https nor http.
    #[error("{url} is no https URL")]
    NotHttps {
        /// The URL.
        url: String,
    },
    /// An http URL where only https is allowed.
    #[error("{url} is not https")]
    Insecure {
        /// The URL.
        url: String,
    },
    /// A host name resolves to an address of a private network, of this machine, or of another special range.
    #[error("{url}: {address} is a private address, from which nothing is fetched")]
    PrivateAddress {
        /// The URL.
        url: String,
        /// The address.
        address: IpAddr,
    },
    /// A server did not answer, or not in HTTP.
    #[error("{url}: {reason}")]
    Request {
        /// The URL.
        url: String,
        /// What the connection reported.
        reason: io::Error,
    },
    /// A server answered with another status than expected.
    #[error("{url}: HTTP status {}", described(*status))]
    Status {
        /// The URL.
        url: String,
        /// The status code.
        status: u16,
    },
    /// A redirect that does not name its target.
    #[error("{url}: a redirect to nowhere")]
    RedirectNowhere {
        /// The URL that redirects.
        url: String,
    },
    /// A redirect whose target is not a URL.
    #[error("{url}: a redirect to no URL: {reason}")]
    RedirectTarget {
        /// The URL that redirects.
        url: String,
        /// What is wrong with the target.
        reason: url::ParseError,
    },
    /// Redirects that may never end.
    #[error("{url}: more than {limit} redirects")]
    TooManyRedirects {
        /// The last URL.
        url: String,
        /// How many redirects are followed.
        limit: usize,
    },
    /// A content encoding that cannot be decoded.
    #[error("{url}: content-encoding `{}` is not known", encoding.escape_debug())]
    Encoding {
        /// The URL.
        url: String,
        /// The encoding.
        encoding: String,
    },
    /// A connection broke, or its bytes cannot be decoded, and trying again did not help.
    #[error("{url}: the connection broke: {reason}")]
    Broken {
        /// The URL.
        url: String,
        /// What the connection or the decoder reported.
        reason: io::Error,
    },
    /// A file is larger than allowed.
    #[error("{url}: the file there has more than {limit} bytes")]
    TooLarge {
        /// The URL.
        url: String,
        /// Bytes that are allowed.
        limit: u64,
    },
    /// A file is not the one that was expected.
    #[error("{url}: the file there has SHA-256 {}, expected {}", Hex(found), Hex(expected))]
    WrongHash {
        /// The URL.
        url: String,
        /// The file's SHA-256.
        found: [u8; 32],
        /// The expected one.
        expected: [u8; 32],
    },
    /// What was downloaded cannot be written to its file, or read back from it.
    #[error("cannot write: {reason}")]
    WriteDownload {
        /// What the system reported.
        reason: io::Error,
    },
    /// The caller stopped the work.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl Error {
    /// Returns what the error means for a caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Remote { .. }
            | Self::NotAUrl { .. }
            | Self::NotHttps { .. }
            | Self::Insecure { .. }
            | Self::PrivateAddress { .. }
            | Self::TooLarge { .. } => ErrorKind::Input,
            Self::SameFile { .. } => ErrorKind::Option,
            Self::NoFolder { .. }
            | Self::IsFolder { .. }
            | Self::NotAFile { .. }
            | Self::Exists { .. }
            | Self::NotOurs { .. }
            | Self::CreateIn { .. }
            | Self::NoSpace { .. }
            | Self::Status { .. }
            | Self::RedirectNowhere { .. }
            | Self::RedirectTarget { .. }
            | Self::TooManyRedirects { .. } => ErrorKind::Io,
            Self::Write { reason, .. }
            | Self::Sync { reason, .. }
            | Self::FreeSpace { reason, .. }
            | Self::Request { reason, .. }
            | Self::Broken { reason, .. }
            | Self::WriteDownload { reason } => reason.into(),
            Self::Encoding { .. } => ErrorKind::Unsupported,
            Self::WrongHash { .. } => ErrorKind::Damaged,
            Self::Cancelled(_) => ErrorKind::Cancelled,
        }
    }
}

/// A status code with its name, such as `404 Not Found`.
#[cfg(feature = "download")]
fn described(status: u16) -> String {
    use ureq::http::StatusCode;
    StatusCode::from_u16(status).map_or_else(|_| status.to_string(), |status| status.to_string())
}

/// The number of a status code.
#[cfg(not(feature = "download"))]
fn described(status: u16) -> u16 {
    status
}

/// A hash in lower-case hexadecimal digits.
struct Hex<'h>(&'h [u8; 32]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
