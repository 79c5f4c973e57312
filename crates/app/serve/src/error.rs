//! Why a server could not start.

use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a model was not loaded. The text names the file.
pub type LoadError = Box<dyn StdError + Send + Sync>;

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server cannot listen on the address.
    #[error("cannot listen on {host}:{port}: {source}")]
    Bind {
        /// The interface.
        host: String,
        /// The port.
        port: u16,
        /// The cause.
        source: io::Error,
    },
    /// The system refused the server a thread, a socket or a timer.
    #[error("cannot start the server: {0}")]
    System(#[source] io::Error),
    /// Two models have the same name.
    #[error("two models have the name `{}`", name.escape_debug())]
    SameName {
        /// The name.
        name: String,
    },
    /// A model has no name.
    #[error("a model needs a name")]
    NoName,
    /// The folder of the repository cannot be listed.
    #[error("cannot list {}: {source}", path.display())]
    List {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A model of the repository cannot be loaded.
    #[error("{0}")]
    Load(#[source] LoadError),
}
