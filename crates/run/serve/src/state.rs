//! State shared by all requests: models, limits and budget, and common steps such as reading a body.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hyper::header::{CONTENT_ENCODING, HeaderMap};
use hyper::http::request::Parts;
use kserve::{EXTENSIONS, ServerMetadata};
use tokio::sync::watch;

use crate::ServeOptions;
use crate::api_keys::ApiKeys;
use crate::body::Upload;
use crate::budget::MemoryBudget;
use crate::encoding::ContentEncoding;
use crate::host::AllowedHosts;
use crate::observer::ServerObserver;
use crate::options::{ServeLimits, Timeouts};
use crate::registry::Registry;
use crate::reject::Reject;

/// Largest number of bytes that the reactor thread parses or writes itself; larger bodies go to a blocking thread.
const INLINE_MAX: usize = 32 << 10;

/// State shared by all requests.
pub(crate) struct ServerState {
    pub(crate) registry: Arc<Registry>,
    pub(crate) limits: ServeLimits,
    pub(crate) timeouts: Timeouts,
    pub(crate) budget: MemoryBudget,
    pub(crate) observer: Arc<dyn ServerObserver>,
    /// Number of requests whose response has not been written.
    pub(crate) in_flight: watch::Sender<usize>,
    pub(crate) metadata: ServerMetadata,
    pub(crate) hosts: AllowedHosts,
    pub(crate) keys: ApiKeys,
    is_draining: AtomicBool,
    /// Seconds since 1970 when the server started.
    pub(crate) started: u64,
}

impl ServerState {
    pub(crate) fn new(
        options: &ServeOptions,
        hosts: AllowedHosts,
        registry: Registry,
        observer: Arc<dyn ServerObserver>,
    ) -> Self {
        Self {
            registry: Arc::new(registry),
            limits: options.limits,
            timeouts: options.timeouts,
            budget: MemoryBudget::new(options.limits.memory),
            observer,
            in_flight: watch::Sender::new(0),
            hosts,
            keys: options.api_keys.clone(),
            metadata: ServerMetadata {
                name: options.name.clone(),
                version: options.version.clone(),
                extensions: EXTENSIONS.map(str::to_owned).to_vec(),
            },
            is_draining: AtomicBool::new(false),
            started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        }
    }

    /// Starts draining: the server is no longer ready, and accepts no more inference requests.
    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Reads the body of a request and decompresses it.
    pub(crate) async fn body(&self, parts: &Parts, upload: &mut Upload) -> Result<Bytes, Reject> {
        let encoding = content_encoding(&parts.headers)?;
        let read = upload.read(&self.limits, &self.timeouts, &self.budget).await;
        let (body, charge) = read.map_err(|unread| Reject::unread(unread, &self.limits))?;
        if encoding == ContentEncoding::Identity {
            return Ok(charge.attach(body));
        }
        let (limits, mut inflated) = (self.limits, self.budget.charge());
        run_blocking(move || {
            // The compressed body counts until it is decompressed.
            let _compressed = charge;
            let bytes = encoding.inflate(&body, limits.body, &mut inflated);
            bytes.map(|bytes| inflated.attach(bytes)).map_err(|error| Reject::inflate(&error, &limits))
        })
        .await?
    }
}

/// Runs `work` on a thread that may block.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Reject> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Reject::internal(format!("a bug in the server: {error}")))
}

/// Runs `work` on this thread if it handles few bytes, so that small requests do not wait for a blocking thread.
pub(crate) async fn run_by_size<T: Send + 'static>(
    nbytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Reject> {
    if nbytes <= INLINE_MAX { Ok(work()) } else { run_blocking(work).await }
}

fn content_encoding(headers: &HeaderMap) -> Result<ContentEncoding, Reject> {
    let mut values = headers.get_all(CONTENT_ENCODING).iter();
    let (Some(value), second) = (values.next(), values.next()) else { return Ok(ContentEncoding::Identity) };
    let name = String::from_utf8_lossy(value.as_bytes());
    match ContentEncoding::from_content_encoding(&name) {
        Some(encoding) if second.is_none() => Ok(encoding),
        _ => Err(Reject::encoding(&name)),
    }
}
