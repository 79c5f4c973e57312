//! From a request to a response: routes, limits, and the answers that need no model.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, EXPECT, HeaderMap, HeaderName, HeaderValue, ORIGIN,
    TRANSFER_ENCODING,
};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use kserve::{EXTENSIONS, ServerMetadata, Statistics};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::body::{Payload, Upload};
use crate::budget::Budget;
use crate::connection::Activity;
use crate::counts;
use crate::encoding::Encoding;
use crate::observer::{Event, Observer, Request as Ended};
use crate::options::{Limits, Timeouts};
use crate::panics::Caught;
use crate::registry::{NotChanged, Registry};
use crate::reject::Reject;
use crate::route::{About, NoRoute, Route, Target};
use crate::{Options, infer};

/// What all requests share.
pub(crate) struct State {
    pub(crate) registry: Arc<Registry>,
    pub(crate) limits: Limits,
    pub(crate) timeouts: Timeouts,
    pub(crate) budget: Budget,
    pub(crate) observer: Arc<dyn Observer>,
    /// Requests whose response has not been written.
    pub(crate) in_flight: watch::Sender<usize>,
    metadata: ServerMetadata,
    is_draining: AtomicBool,
}

/// What a route answers.
pub(crate) type Answer = Result<Response<Payload>, Reject>;

impl State {
    pub(crate) fn new(options: &Options, registry: Registry, observer: Arc<dyn Observer>) -> Self {
        Self {
            registry: Arc::new(registry),
            limits: options.limits,
            timeouts: options.timeouts,
            budget: Budget::new(options.limits.memory),
            observer,
            in_flight: watch::Sender::new(0),
            metadata: ServerMetadata {
                name: options.name.clone(),
                version: options.version.clone(),
                extensions: EXTENSIONS.map(str::to_owned).to_vec(),
            },
            is_draining: AtomicBool::new(false),
        }
    }

    /// From now on the server is not ready, and takes no more inference requests.
    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Answers a request. A panic on the way is a response with status 500.
    pub(crate) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        client: SocketAddr,
        activity: Activity,
    ) -> Result<Response<Payload>, Infallible> {
        activity.request();
        let in_flight = InFlight::new(self.clone());
        let (parts, incoming) = request.into_parts();
        let mut upload = Upload::new(incoming);
        let mut log = Log::new(self.observer.clone(), client, &parts);
        let answered = Caught::new(self.route(&parts, &mut upload)).await;
        log.received = upload.received() as u64;
        let answer = match answered {
            Ok(answer) => answer,
            Err(message) => Err(Reject::internal(format!("a bug in the server: {message}"))),
        };
        let mut response = answer.unwrap_or_else(|reject| {
            log.error = Some(reject.error.clone());
            reject.response()
        });
        if !self.finish(&parts, &mut upload).await || self.is_draining() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        log.received = upload.received() as u64;
        log.status = Some(response.status().as_u16());
        log.sent = response.body().len();
        activity.response();
        // The request is in flight until the last byte of its response is with the system.
        let in_flight = Arc::new(in_flight);
        Ok(response.map(|body| body.map(|part| in_flight.clone().hold(part))))
    }

    /// Reads what a route left of a body; false if the connection has to be closed.
    async fn finish(&self, parts: &Parts, upload: &mut Upload) -> bool {
        if upload.is_over() {
            return true;
        }
        if parts.headers.contains_key(EXPECT) && upload.received() == 0 {
            // The client waits for the response before it sends a body.
            upload.leave();
            return false;
        }
        upload.skip(&self.limits, &self.timeouts).await
    }

    async fn route(self: &Arc<Self>, parts: &Parts, upload: &mut Upload) -> Answer {
        refuse_web_pages(&parts.headers)?;
        if parts
            .headers
            .get(TRANSFER_ENCODING)
            .is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
        {
            return Err(Reject::new(StatusCode::NOT_IMPLEMENTED, "the only Transfer-Encoding is chunked"));
        }
        let route = Route::find(&parts.method, parts.uri.path()).map_err(|no_route| match no_route {
            NoRoute::NotFound => Reject::not_found(),
            NoRoute::Method(allowed) => Reject::method(&allowed),
        })?;
        match route {
            Route::Server => json(&self.metadata),
            Route::Ready if self.is_draining() => Ok(empty(StatusCode::BAD_REQUEST)),
            Route::Live | Route::Ready => Ok(empty(StatusCode::OK)),
            Route::Metrics => {
                let text = counts::metrics(&self.registry.all());
                Ok(response("text/plain; version=0.0.4; charset=utf-8", [Bytes::from(text)]))
            }
            Route::Statistics => {
                let model_stats = self.registry.all().iter().map(|served| served.statistics()).collect();
                json(&Statistics { model_stats })
            }
            Route::Index => self.index(parts, upload).await,
            Route::Load(name) => self.load(parts, upload, name).await,
            Route::Unload(name) => self.unload(parts, upload, name).await,
            Route::Model(target, About::Infer) => infer::infer(self, parts, upload, &target).await,
            Route::Model(target, about) => self.about(&target, about),
        }
    }

    fn about(&self, target: &Target, about: About) -> Answer {
        let served = self.registry.find(target);
        let served = match about {
            // Triton's status where a model is unknown.
            About::Ready | About::Statistics => {
                served.map_err(|error| Reject::bad_request(error.to_string()))?
            }
            _ => served.map_err(|error| Reject::kserve(&error))?,
        };
        match about {
            About::Ready if self.is_draining() => Err(Reject::bad_request("the server is shutting down")),
            About::Ready => Ok(empty(StatusCode::OK)),
            About::Config => json(&*served.config),
            About::Statistics => json(&Statistics { model_stats: vec![served.statistics()] }),
            About::Metadata | About::Infer => {
                json(&served.config.metadata(self.registry.versions(&served.name)))
            }
        }
    }

    async fn index(self: &Arc<Self>, parts: &Parts, upload: &mut Upload) -> Answer {
        let options: IndexOptions = self.options(parts, upload).await?;
        let registry = self.registry.clone();
        let index = run_blocking(move || registry.index(options.ready)).await?;
        json(&index.map_err(|error| Reject::internal(error.to_string()))?)
    }

    async fn load(self: &Arc<Self>, parts: &Parts, upload: &mut Upload, name: String) -> Answer {
        let options: ChangeOptions = self.options(parts, upload).await?;
        if let Some(parameter) = options.parameters.keys().next() {
            let parameter = parameter.escape_debug();
            return Err(Reject::bad_request(format!("load takes no parameters here, and got `{parameter}`")));
        }
        self.change(name.clone(), self.registry.clone().load(name)).await
    }

    async fn unload(self: &Arc<Self>, parts: &Parts, upload: &mut Upload, name: String) -> Answer {
        // `unload_dependents` is accepted: no model depends on another one.
        let _: ChangeOptions = self.options(parts, upload).await?;
        self.change(name.clone(), self.registry.clone().unload(name)).await
    }

    /// Loads or unloads a model, to the end even if the client goes away.
    async fn change(
        &self,
        name: String,
        change: impl Future<Output = Result<(), NotChanged>> + Send + 'static,
    ) -> Answer {
        if self.is_draining() {
            return Err(Reject::draining());
        }
        let changed = tokio::spawn(change).await.unwrap_or(Err(NotChanged::Panicked));
        changed.map_err(|not_changed| match not_changed {
            NotChanged::NoRepository => {
                let error =
                    "models can be loaded and unloaded only if the server was started with a repository";
                Reject::new(StatusCode::SERVICE_UNAVAILABLE, error)
            }
            NotChanged::Unknown => {
                let error = format!("the repository has no model `{}`", name.escape_debug());
                Reject::new(StatusCode::NOT_FOUND, error)
            }
            NotChanged::Failed(error) => Reject::internal(error.to_string()),
            NotChanged::Panicked => Reject::internal(format!("loading `{}` panicked", name.escape_debug())),
        })?;
        Ok(empty(StatusCode::OK))
    }

    /// A small JSON body; an empty one has the defaults.
    async fn options<T: for<'de> Deserialize<'de> + Default>(
        &self,
        parts: &Parts,
        upload: &mut Upload,
    ) -> Result<T, Reject> {
        let body = self.body(parts, upload).await?;
        if body.is_empty() {
            return Ok(T::default());
        }
        serde_json::from_slice(&body).map_err(|error| Reject::bad_request(format!("the body: {error}")))
    }

    /// The body of a request, inflated.
    pub(crate) async fn body(&self, parts: &Parts, upload: &mut Upload) -> Result<Bytes, Reject> {
        let encoding = content_encoding(&parts.headers)?;
        let read = upload.read(&self.limits, &self.timeouts, &self.budget).await;
        let (body, charge) = read.map_err(|unread| Reject::unread(unread, &self.limits))?;
        if encoding == Encoding::Identity {
            return Ok(charge.attach(body));
        }
        let (limits, mut inflated) = (self.limits, self.budget.charge());
        run_blocking(move || {
            // The compressed body counts until it is inflated.
            let _compressed = charge;
            let bytes = encoding.inflate(&body, limits.body, &mut inflated);
            bytes.map(|bytes| inflated.attach(bytes)).map_err(|error| Reject::inflate(&error, &limits))
        })
        .await?
    }
}

/// What `POST /v2/repository/index` takes.
#[derive(Debug, Default, Deserialize)]
struct IndexOptions {
    #[serde(default)]
    ready: bool,
}

/// What `load` and `unload` take.
#[derive(Debug, Default, Deserialize)]
struct ChangeOptions {
    #[serde(default)]
    parameters: serde_json::Map<String, serde_json::Value>,
}

/// Runs `work` on a thread that may block.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Reject> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Reject::internal(format!("a bug in the server: {error}")))
}

pub(crate) fn response(
    content_type: &'static str,
    parts: impl IntoIterator<Item = Bytes>,
) -> Response<Payload> {
    let mut response = Response::new(Payload::new(parts));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn json(value: &impl Serialize) -> Answer {
    let text = serde_json::to_vec(value).map_err(|error| Reject::internal(error.to_string()))?;
    Ok(response("application/json", [Bytes::from(text)]))
}

fn empty(status: StatusCode) -> Response<Payload> {
    let mut response = Response::new(Payload::default());
    *response.status_mut() = status;
    response
}

fn content_encoding(headers: &HeaderMap) -> Result<Encoding, Reject> {
    let mut values = headers.get_all(CONTENT_ENCODING).iter();
    let (Some(value), second) = (values.next(), values.next()) else { return Ok(Encoding::Identity) };
    let name = String::from_utf8_lossy(value.as_bytes());
    match Encoding::of_request(&name) {
        Some(encoding) if second.is_none() => Ok(encoding),
        _ => Err(Reject::encoding(&name)),
    }
}

/// Web pages can send requests to servers that only listen on this machine. Browsers mark what a page sends.
fn refuse_web_pages(headers: &HeaderMap) -> Result<(), Reject> {
    const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
    let is_typed = headers.get(FETCH_SITE).is_none_or(|site| site == "none");
    if headers.contains_key(ORIGIN) || !is_typed {
        return Err(Reject::new(StatusCode::FORBIDDEN, "requests of web pages are refused"));
    }
    Ok(())
}

/// A request that is in flight until this is dropped.
struct InFlight(Arc<State>);

impl InFlight {
    fn new(state: Arc<State>) -> Self {
        state.in_flight.send_modify(|count| *count = count.saturating_add(1));
        Self(state)
    }

    /// Bytes that keep the request in flight as long as they are in use.
    fn hold(self: Arc<Self>, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Held { bytes, _request: self })
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.send_modify(|count| *count = count.saturating_sub(1));
    }
}

struct Held {
    bytes: Bytes,
    _request: Arc<InFlight>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// What is reported about a request when this is dropped, which is when it ends or its client goes away.
struct Log {
    observer: Arc<dyn Observer>,
    client: SocketAddr,
    method: String,
    path: String,
    since: Instant,
    status: Option<u16>,
    received: u64,
    sent: u64,
    error: Option<String>,
}

impl Log {
    fn new(observer: Arc<dyn Observer>, client: SocketAddr, parts: &Parts) -> Self {
        let path = parts.uri.path_and_query().map_or_else(|| parts.uri.to_string(), ToString::to_string);
        let (method, since) = (parts.method.to_string(), Instant::now());
        Self { observer, client, method, path, since, status: None, received: 0, sent: 0, error: None }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let ended = Ended {
            client: self.client,
            method: &self.method,
            path: &self.path,
            status: self.status,
            received: self.received,
            sent: self.sent,
            duration: self.since.elapsed(),
            error: self.error.as_deref(),
        };
        self.observer.event(&Event::Request(&ended));
    }
}
