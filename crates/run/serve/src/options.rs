//! Options of a server: its address, the limits on clients, and the timeouts.

use std::time::Duration;

use crate::api_keys::ApiKeys;

/// Options for serving models.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Address or name of the interface to listen on.
    pub host: String,
    /// Port to listen on; 0 lets the system choose one.
    pub port: u16,
    /// Names that requests may have in `Host`, besides `localhost` and IP addresses. A request with another name is refused,
    /// because it may come from a web page that resolves its own name to this machine.
    pub allowed_hosts: Vec<String>,
    /// Keys of which each request has to send one, except for the health of the server.
    pub api_keys: ApiKeys,
    /// Name of the server in `GET /v2`.
    pub name: String,
    /// Version of the server in `GET /v2`.
    pub version: String,
    pub limits: ServeLimits,
    pub timeouts: Timeouts,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 8000,
            allowed_hosts: Vec::new(),
            api_keys: ApiKeys::default(),
            name: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            limits: ServeLimits::default(),
            timeouts: Timeouts::default(),
        }
    }
}

/// Limits on the resources that clients use. A request beyond a limit is refused, and nothing without a limit grows with the
/// data that clients send.
#[derive(Clone, Copy, Debug)]
pub struct ServeLimits {
    /// Connections at a time. More wait in the system's queue; idle ones are closed to make room.
    pub connections: usize,
    /// Bytes of a request line and its headers.
    pub head: usize,
    /// Number of headers of a request.
    pub headers: usize,
    /// Bytes of a request body, both compressed and decompressed. The default is Triton's.
    pub body: usize,
    /// Bytes of tensors that a response may write as JSON; their text is up to six times as long. Also the largest response
    /// that is compressed, in bytes.
    pub json: usize,
    /// Bytes of all requests and responses together that are in memory at a time.
    pub memory: usize,
    /// Number of requests that may wait for one model.
    pub queue: usize,
}

impl Default for ServeLimits {
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

/// Limits on the tokens and the memory of one request to a decoder.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// Bytes of the outputs and, in a decoder, of the keys and values.
    pub memory: usize,
    /// Tokens that a request gives, those of all sequences together.
    pub tokens: u64,
    /// Tokens of a sequence, with those of its past; `None` for the positions that the model was made for, or
    /// [`DEFAULT_MAX_POSITIONS`] if its carton does not say how many.
    pub positions: Option<u64>,
}

/// Tokens of a sequence of a model whose carton does not say how many positions it has.
pub const DEFAULT_MAX_POSITIONS: u64 = 8192;

impl Default for RequestLimits {
    fn default() -> Self {
        Self { memory: 1 << 30, tokens: 32 << 10, positions: None }
    }
}

/// Timeouts of slow or idle clients.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Time from the first byte of a request to the end of its headers.
    pub head: Duration,
    /// Time between two requests of a connection.
    pub idle: Duration,
    /// Base time for a request body to arrive, and for a client to read a response. Each transfer gets one second more for
    /// every [`bytes_per_second`](Self::bytes_per_second) bytes transferred.
    pub transfer: Duration,
    /// Slowest sustained speed of a client.
    pub bytes_per_second: u32,
    /// Time that a model may compute for one request. The time in its queue and between its pieces does not count.
    pub compute: Duration,
    /// Time for the requests that are in flight when the server shuts down.
    pub drain: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(30),
            idle: Duration::from_secs(300),
            transfer: Duration::from_secs(30),
            bytes_per_second: 32 << 10,
            compute: Duration::from_secs(60),
            drain: Duration::from_secs(30),
        }
    }
}
