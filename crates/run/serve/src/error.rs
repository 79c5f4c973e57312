//! Errors that keep a server from starting.

use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;

use crate::folder::RepositoryFolder;

/// Result whose error is this crate's [`Error`] by default.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of loading a model. Its text names the file.
pub type LoadError = Box<dyn StdError + Send + Sync>;

/// Error that keeps a server from starting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("cannot listen on {host}:{port}: {source}")]
    Bind { host: String, port: u16, source: io::Error },
    /// A name that requests may have in `Host` is not a host name.
    #[error(
        "`{}` is not a host name: it takes ASCII letters, digits, `-` and `_` in parts between dots, and no port",
        name.escape_debug()
    )]
    HostName { name: String },
    /// A key that clients send has characters that no header can carry, or none. Its text does not show the key.
    #[error("an API key takes ASCII letters, digits and punctuation, without spaces")]
    ApiKey,
    /// The system refused a thread, a socket or a timer.
    #[error("cannot start the server: {0}")]
    System(#[source] io::Error),
    #[error("two models have the name `{}`", name.escape_debug())]
    SameName { name: String },
    #[error("a model needs a name")]
    NoName,
    /// A folder of the model repository cannot be listed.
    #[error("cannot list {}: {source}", path.display())]
    List { path: PathBuf, source: io::Error },
    /// A model repository has no model that could be served.
    #[error("{} has no model: expected files NAME/VERSION.{extension}, such as llama/1.{extension}", folder.path.display(), extension = folder.extension)]
    EmptyRepository { folder: RepositoryFolder },
    #[error("{0}")]
    Load(#[source] LoadError),
}
