//! Errors of downloads and local writes.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use byte_source::{Cancelled, ErrorKind};

use crate::{RemoteAddress, shown_path};

/// Result whose error is this crate's [`Error`] by default.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of a download or of a local write.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A path is the address of a remote file.
    #[error("{} is not a local path", shown_path(path).display())]
    Remote {
        /// Path as it was typed.
        path: PathBuf,
        /// Address that the path spells.
        address: RemoteAddress,
    },

    /// The path of an output is an address, and outputs at addresses are not written.
    #[error("cannot write {}: it is not a local path", shown_path(path).display())]
    RemoteOutput { path: PathBuf },
    /// A part of the path to an output is a file.
    #[error("cannot write {}: {} is not a folder", path.display(), folder.display())]
    NoFolder { path: PathBuf, folder: PathBuf },
    /// An output is a folder.
    #[error("cannot write {}: it is a folder", path.display())]
    IsFolder { path: PathBuf },
    /// An output is a pipe, a socket or a device.
    #[error("cannot write {}: it is {what}", path.display())]
    NotAFile {
        path: PathBuf,
        /// Kind of the path, with its article.
        what: &'static str,
    },
    /// An output is one of the inputs, by whatever path or link.
    #[error("the output {} is the input {}", output.display(), input.display())]
    SameFile {
        /// Output path as it was typed.
        output: PathBuf,
        /// Input path as it was typed.
        input: PathBuf,
    },
    /// An output exists and must not be replaced.
    #[error("{} exists", path.display())]
    Exists { path: PathBuf },
    /// An output exists without a mark that this program wrote it.
    #[error("cannot replace {}: it was not written by torch2carton, or was changed or copied since", path.display())]
    NotOwnOutput { path: PathBuf },
    /// No file or folder can be created in a folder.
    #[error("cannot write into {}: {kind}", folder.display())]
    CreateIn {
        folder: PathBuf,
        /// Kind of the system's error, without its message, which names a temporary file.
        kind: io::ErrorKind,
    },
    /// A file cannot be written, synced or renamed.
    #[error("cannot write {}: {reason}", path.display())]
    Write {
        path: PathBuf,
        /// Error reported by the system.
        reason: io::Error,
    },
    /// The files in a folder cannot be synced.
    #[error("cannot write into {}: {reason}", folder.display())]
    Sync {
        folder: PathBuf,
        /// Error reported by the system.
        reason: io::Error,
    },
    /// The system does not report the free space.
    #[error("cannot ask for the free space in {}: {reason}", folder.display())]
    FreeSpace {
        folder: PathBuf,
        /// Error reported by the system.
        reason: io::Error,
    },
    /// The filesystem has too little free space.
    #[error("needs {needed} bytes in {}, {free} free", folder.display())]
    NoSpace {
        /// Bytes that will be written.
        needed: u64,
        /// Bytes that are free.
        free: u64,
        folder: PathBuf,
    },

    /// A URL cannot be parsed.
    #[error("`{}` is no URL: {reason}", url.escape_debug())]
    NotAUrl {
        /// Text that cannot be parsed.
        url: String,
        /// Reason reported by the URL parser.
        reason: url::ParseError,
    },
    /// A URL is neither https nor http.
    #[error("{url} is no https URL")]
    NotHttps { url: String },
    /// An http URL where only https is allowed.
    #[error("{url} is not https")]
    Insecure { url: String },
    /// A host name resolves to an address of a private network, of this machine, or of another special range.
    #[error("{url}: {address} is a private address, from which nothing is fetched")]
    PrivateAddress { url: String, address: IpAddr },
    /// A server did not answer, or its answer is not HTTP.
    #[error("{url}: {reason}")]
    Request {
        url: String,
        /// Error reported by the connection.
        reason: io::Error,
    },
    /// A server answered with another status than expected.
    #[error("{url}: HTTP status {}", describe_status(*status))]
    Status { url: String, status: u16 },
    /// A redirect without a readable `Location` header.
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
        /// Reason reported by the URL parser.
        reason: url::ParseError,
    },
    /// A chain of redirects that is longer than allowed.
    #[error("{url}: more than {limit} redirects")]
    TooManyRedirects {
        /// Last URL of the chain.
        url: String,
        /// Largest number of redirects that are followed.
        limit: usize,
    },
    /// A content encoding that cannot be decoded.
    #[error("{url}: content-encoding `{}` is not known", encoding.escape_debug())]
    Encoding { url: String, encoding: String },
    /// A connection broke, or its bytes cannot be decoded, and trying again did not help.
    #[error("{url}: the connection broke: {reason}")]
    Broken {
        url: String,
        /// Error reported by the connection or the decoder.
        reason: io::Error,
    },
    /// A file is larger than allowed.
    #[error("{url}: the file there has more than {limit} bytes")]
    TooLarge {
        url: String,
        /// Largest size that is allowed, in bytes.
        limit: u64,
    },
    /// A downloaded file has another SHA-256 than expected.
    #[error("{url}: the file there has SHA-256 {}, expected {}", Hex(found), Hex(expected))]
    WrongHash {
        url: String,
        /// SHA-256 of the downloaded file.
        found: [u8; 32],
        /// SHA-256 that was expected.
        expected: [u8; 32],
    },
    /// A downloaded file cannot be written or read back.
    #[error("cannot write: {reason}")]
    WriteDownload {
        /// Error reported by the system.
        reason: io::Error,
    },
    /// The caller stopped the work.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl Error {
    /// Classifies the error for the caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Remote { .. }
            | Self::RemoteOutput { .. }
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
            | Self::NotOwnOutput { .. }
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

/// Formats a status code with its name, such as `404 Not Found`.
#[cfg(feature = "download")]
fn describe_status(status: u16) -> String {
    use ureq::http::StatusCode;
    StatusCode::from_u16(status).map_or_else(|_| status.to_string(), |status| status.to_string())
}

/// Returns the bare status code: its name is known only with the feature `download`.
#[cfg(not(feature = "download"))]
fn describe_status(status: u16) -> u16 {
    status
}

/// SHA-256 that is displayed in lower-case hexadecimal digits.
struct Hex<'h>(&'h [u8; 32]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
