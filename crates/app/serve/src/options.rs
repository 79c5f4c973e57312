//! How to serve: where to listen, what a client may cost, and how long to wait for it.

use std::time::Duration;

/// Where and how to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address or the name of the interface to listen on.
    pub host: String,
    /// The port; 0 lets the system choose one.
    pub port: u16,
    /// The server's name in `GET /v2`.
    pub name: String,
    /// The server's version in `GET /v2`.
    pub version: String,
    /// What clients may cost.
    pub limits: Limits,
    /// How long to wait for clients.
    pub timeouts: Timeouts,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 8000,
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
        }
    }
}

/// What clients may cost. A request beyond a limit is refused, and nothing that has no limit grows with what clients send.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time. More wait in the system's queue; idle ones are closed to make room.
    pub connections: usize,
    /// Bytes of a request line and its headers.
    pub head: usize,
    /// Headers of a request.
    pub headers: usize,
    /// Bytes of a body, and of what it becomes when it is inflated. The default is Triton's.
    pub body: usize,
    /// Bytes of tensors that a response may write as JSON; as text they are up to six times as long. Bytes of a response
    /// that may be compressed.
    pub json: usize,
    /// Bytes of all requests and responses together that are in memory at a time.
    pub memory: usize,
    /// Requests that may wait for one model.
    pub queue: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            head: 32 << 10,
            headers: 100,
            body: 64 << 20,
            json: 64 << 20,
            memory: 1 << 30,
            queue: 1024,
        }
    }
}

/// How long to wait for clients.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From the first byte of a request to the end of its headers.
    pub head: Duration,
    /// Between two requests of a connection.
    pub idle: Duration,
    /// For a body, and for a client to read a response. Each gets this long, and one second more for every
    /// [`bytes_per_second`](Self::bytes_per_second) that arrived.
    pub transfer: Duration,
    /// The speed below which a client is too slow.
    pub bytes_per_second: u32,
    /// For requests that are in flight when the server ends.
    pub drain: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(30),
            idle: Duration::from_secs(300),
            transfer: Duration::from_secs(30),
            bytes_per_second: 32 << 10,
            drain: Duration::from_secs(30),
        }
    }
}
