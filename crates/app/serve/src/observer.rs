//! What a server reports while it runs.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Follows a server. Methods are called on the thread that serves all connections: they should return at once.
pub trait Observer: Send + Sync + 'static {
    /// Called with each event.
    fn event(&self, event: &Event<'_>);
}

impl Observer for () {
    fn event(&self, _: &Event<'_>) {}
}

/// Something that happened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'e> {
    /// A request ended.
    Request(&'e Request<'e>),
    /// A version of a model answers requests from now on.
    Loaded {
        /// The model.
        name: &'e str,
        /// The version.
        version: u64,
    },
    /// A version of a model answers no more requests.
    Unloaded {
        /// The model.
        name: &'e str,
        /// The version.
        version: u64,
    },
    /// A file looks like a model of the repository, but is not `NAME/VERSION` with a number as its version.
    Ignored {
        /// The file.
        path: &'e Path,
    },
    /// No file of the repository is a model.
    Empty {
        /// The repository.
        path: &'e Path,
    },
    /// A connection could not be accepted.
    Accept {
        /// The cause.
        error: &'e std::io::Error,
    },
    /// The server ends: it refuses new requests and finishes those that it has.
    Draining {
        /// Requests in flight.
        requests: usize,
    },
}

/// A request that ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Request<'e> {
    /// The client.
    pub client: SocketAddr,
    /// The method. Sent by the client, like [`path`](Self::path): any characters.
    pub method: &'e str,
    /// The path, with the query.
    pub path: &'e str,
    /// The status of the response; none if the client went away before there was one.
    pub status: Option<u16>,
    /// Bytes of the request's body.
    pub received: u64,
    /// Bytes of the response's body.
    pub sent: u64,
    /// From the end of the headers until the response was there.
    pub duration: Duration,
    /// The text of the error in the response.
    pub error: Option<&'e str>,
}
