//! Errors of remote files.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use byte_source::{Cancelled, details, hex};

/// Result with an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of a remote file. Addresses in it have no secrets.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not an address that can be read.
    #[error("{address} is not an address that can be read, expected {expected}")]
    Address { address: String, expected: &'static str },
    /// The address names a repository, not a file.
    #[error("{address} is a repository, expected a file in it")]
    Repository { address: String },
    /// Files of one input are in different folders.
    #[error("{first} and {second} are not in one folder")]
    Apart { first: String, second: String },
    /// A file of one input is named more than once.
    #[error("{address} is given more than once")]
    Repeated { address: String },
    /// The address is http, without encryption.
    #[error("{address} is not encrypted")]
    Insecure { address: String },
    /// The scheme of a redirect is not https.
    #[error("{address} redirects to {scheme}, expected https")]
    RedirectScheme { address: String, scheme: String },
    /// The host has an address of a private network.
    #[error("{address}: {ip} is an address of a private network")]
    PrivateAddress { address: String, ip: IpAddr },
    /// This build sends no requests.
    #[error("{address} is remote, and this build reads local files only")]
    Disabled { address: String },
    /// Requests are switched off.
    #[error("{address} is remote, and requests are switched off")]
    Offline { address: String },
    /// The server refuses access.
    #[error("{address}: the server answers {status}{}", reason(.message))]
    Denied { address: String, status: u16, message: String, has_token: bool },
    /// There is no such file.
    #[error("{address} does not exist{}", reason(.message))]
    NotFound { address: String, message: String },
    /// There was such a file, and it was removed for good.
    #[error("{address} does not exist any more: the server answers 410, gone{}", reason(.message))]
    Gone { address: String, message: String },
    /// The server answers with an error, also after further tries.
    #[error("{address}: the server answers {}{}", status_text(*.status), reason(.message))]
    Status { address: String, status: u16, message: String },
    /// The server asks to wait longer than this program waits.
    #[error("{address}: the server answers {}, and asks to wait for {seconds} s", status_text(*.status))]
    Wait { address: String, status: u16, seconds: u64 },
    /// The server sends whole files only.
    #[error("{address}: the server does not send parts of files")]
    NoRanges { address: String },
    /// The answer is not what was asked for.
    #[error("{address}: the server's answer is wrong: {reason}")]
    Answer { address: String, reason: String },
    /// A file to download is longer than allowed.
    #[error("{address}: the file there has more than {limit} bytes")]
    TooLarge { address: String, limit: u64 },
    /// A downloaded file has another SHA-256 than expected.
    #[error("{address}: the file there has SHA-256 {}, expected {}", hex(found), hex(expected))]
    WrongHash { address: String, found: [u8; 32], expected: [u8; 32] },
    /// A downloaded file cannot be written or read back.
    #[error("cannot write: {reason}")]
    Write { reason: String },
    /// The file changed while it was read.
    #[error("{address} changed while it was read: {what} was {before}, and is {now}")]
    Changed { address: String, what: &'static str, before: String, now: String },
    /// The server cannot be reached, or the connection broke several times.
    #[error("{address} cannot be read: {reason}")]
    Connection { address: String, reason: String },
    /// The bytes come too slowly.
    #[error("{address} is too slow: {received} of {expected} bytes in {} s", .after.as_secs())]
    Slow { address: String, received: u64, expected: u64, after: Duration },
    /// There are too many redirects.
    #[error("{address} redirects more than {limit} times")]
    Redirects { address: String, limit: usize },
    /// The certificates of `SSL_CERT_FILE` cannot be read.
    #[error("SSL_CERT_FILE: {path} has no certificates that can be read: {reason}")]
    Certificates { path: String, reason: String },
    /// Nothing can be written at the address.
    #[error("{address} cannot be written, expected a local path, s3://, gs:// or az://")]
    Output { address: String },
    /// What is at the address of an output is not what was there before.
    #[error("{address} was written by another program meanwhile")]
    Conflict { address: String },
    /// An output is complete, and the temporary object that was copied to it is still there.
    #[error("it is complete, but the temporary object {temporary} cannot be deleted: {reason}")]
    Leftover { temporary: String, reason: Box<Self> },
    /// A file of the cache cannot be written.
    #[error("the cache {folder} cannot be written: {reason}")]
    Cache { folder: String, reason: String },
    /// The caller cancelled the operation.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

/// Formats what a server says about an error.
fn reason(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(" ({message})") }
}

/// Formats a status, with the name of one that a caller can do something about.
fn status_text(status: u16) -> String {
    if status == 429 { "429, too many requests".to_owned() } else { status.to_string() }
}

details! {
    Error {
        Input: Address, Repository, Apart, Repeated, TooLarge, Output;
        Damaged: WrongHash;
        Changed: Changed;
        Cancelled: Cancelled;
        Unsupported: NoRanges, Disabled;
        Io: Insecure, RedirectScheme, PrivateAddress, Offline, Denied, NotFound, Gone, Status, Wait, Answer, Write, Connection, Slow,
            Redirects, Certificates, Conflict, Leftover, Cache;
    }
}

impl Error {
    /// Returns the error with the address of an object in a bucket instead of the URL of the service, unless it is about the URL.
    #[cfg(feature = "buckets")]
    pub(crate) fn of_object(mut self, object: &str) -> Self {
        match &mut self {
            Self::Connection { address, reason } if address != object => {
                *reason = format!("{address}: {reason}");
                object.clone_into(address);
            }
            Self::Denied { address, .. }
            | Self::NotFound { address, .. }
            | Self::Gone { address, .. }
            | Self::Status { address, .. }
            | Self::Wait { address, .. }
            | Self::NoRanges { address }
            | Self::Answer { address, .. }
            | Self::Changed { address, .. }
            | Self::Slow { address, .. }
            | Self::Conflict { address } => object.clone_into(address),
            _ => {}
        }
        self
    }

    /// Returns the error with the time that the server asked to wait, which is too long.
    #[cfg(feature = "http")]
    pub(crate) fn with_wait(self, seconds: u64) -> Self {
        match self {
            Self::Status { address, status, .. } => Self::Wait { address, status, seconds },
            error => error,
        }
    }

    /// Returns true if another try may succeed.
    #[cfg(feature = "http")]
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Connection { .. } => true,
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500 | 502 | 503 | 504),
            _ => false,
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::Conflict { .. } => io::ErrorKind::AlreadyExists,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, byte_source::Error::from(error))
    }
}
