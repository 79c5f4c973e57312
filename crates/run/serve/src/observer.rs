//! Events that a server reports while it runs.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Receiver of a server's events. Its methods run on the thread that serves all connections, so they should return at once.
pub trait ServerObserver: Send + Sync + 'static {
    /// Handles an event of the server.
    fn event(&self, event: &ServerEvent<'_>);
}

impl ServerObserver for () {
    fn event(&self, _: &ServerEvent<'_>) {}
}

/// Event of a running server.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ServerEvent<'e> {
    /// A request ended, with or without a response.
    Request(&'e RequestRecord<'e>),
    /// A version of a model answers requests from now on.
    Loaded { name: &'e str, version: u64 },
    /// A version of a model answers no more requests.
    Unloaded { name: &'e str, version: u64 },
    /// A file of the repository has the extension of a model, but its path is not `NAME/VERSION` with a number as version.
    Ignored { path: &'e Path },
    /// A connection could not be accepted.
    Accept { error: &'e std::io::Error },
    /// The server shuts down: it refuses new requests and finishes the current ones.
    Draining {
        /// Number of requests in flight.
        requests: usize,
    },
}

/// Log record of a request that ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RequestRecord<'e> {
    pub client: SocketAddr,
    /// HTTP method. The client chooses it, like [`path`](Self::path), so it may hold any characters.
    pub method: &'e str,
    /// Path and query of the request target.
    pub path: &'e str,
    /// Status of the response; `None` if the client went away before there was one.
    pub status: Option<u16>,
    /// Bytes of the request's body.
    pub received: u64,
    /// Bytes of the response's body.
    pub sent: u64,
    /// Time from the end of the request headers until the response was ready.
    pub duration: Duration,
    /// Error text in the response.
    pub error: Option<&'e str>,
}
