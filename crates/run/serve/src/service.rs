//! Handles a request: routing, limits, and the responses that need no model.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, TRANSFER_ENCODING,
};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use kserve::Statistics;
use serde::Deserialize;

use crate::answer::{RouteResult, empty, json, pretty_json, response};
use crate::body::{Payload, Upload};
use crate::connection::Activity;
use crate::observer::{RequestRecord as Ended, ServerEvent, ServerObserver};
use crate::overview::{self, ServerOverview};
use crate::panics::CatchPanic;
use crate::registry::ChangeError;
use crate::reject::Reject;
use crate::route::{ModelEndpoint, ModelTarget, Route, RouteError, is_openai};
use crate::state::{ServerState, run_blocking};
use crate::{infer, metrics, openai, page};

/// Answers a request. A panic becomes a response with status 500.
pub(crate) async fn answer(
    state: Arc<ServerState>,
    request: Request<Incoming>,
    client: SocketAddr,
    activity: Activity,
) -> Result<Response<Payload>, Infallible> {
    activity.start_answering();
    let in_flight = InFlight::new(state.clone());
    let (parts, incoming) = request.into_parts();
    let mut upload = Upload::new(incoming);
    let mut log = RequestLog::new(state.observer.clone(), client, &parts);
    let answered = CatchPanic::new(route(&state, &parts, &mut upload)).await;
    log.received = upload.received() as u64;
    let answer = match answered {
        Ok(answer) => answer,
        Err(message) => Err(Reject::internal(format!("a bug in the server: {message}"))),
    };
    let mut response = answer.unwrap_or_else(|reject| {
        log.error = Some(reject.error.clone());
        if is_openai(parts.uri.path()) { openai::error_response(&reject) } else { reject.response() }
    });
    if !skip_rest(&state, &parts, &mut upload).await || state.is_draining() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    log.received = upload.received() as u64;
    log.status = Some(response.status().as_u16());
    if response.body().is_live() {
        response.body_mut().call_at_end(move |sent| {
            log.sent = sent;
            activity.finish_answering();
            drop((log, in_flight));
        });
        return Ok(response);
    }
    log.sent = response.body().len();
    activity.finish_answering();
    // The request is in flight until the system has the last byte of its response.
    let in_flight = Arc::new(in_flight);
    Ok(response.map(|body| body.map(|part| in_flight.clone().hold(part))))
}

/// Reads the rest of a request body; false if the connection has to be closed.
async fn skip_rest(state: &ServerState, parts: &Parts, upload: &mut Upload) -> bool {
    if upload.is_over() {
        return true;
    }
    if expectations(&parts.headers).any(is_continue) && upload.received() == 0 {
        // A client with `Expect: 100-continue` waits for the response before it sends a body.
        return false;
    }
    upload.skip(&state.limits, &state.timeouts).await
}

async fn route(state: &Arc<ServerState>, parts: &Parts, upload: &mut Upload) -> RouteResult {
    state.hosts.check(parts)?;
    refuse_web_pages(&parts.headers)?;
    refuse_unknown_expectations(&parts.headers)?;
    if parts
        .headers
        .get(TRANSFER_ENCODING)
        .is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
    {
        return Err(Reject::new(StatusCode::NOT_IMPLEMENTED, "the only Transfer-Encoding is chunked"));
    }
    let route = Route::find(&parts.method, parts.uri.path());
    let is_page = route == Ok(Route::Overview) && page::wants_page(&parts.headers);
    if is_page {
        return Ok(page::page());
    }
    if !route.as_ref().is_ok_and(Route::is_public) {
        state.keys.check(&parts.headers).map_err(Reject::unauthorized)?;
    }
    let route = route.map_err(|no_route| match no_route {
        RouteError::NotFound => {
            let text = overview::not_found_text(state, parts.uri.path());
            Reject::new(StatusCode::NOT_FOUND, text).with_code("unknown_url")
        }
        RouteError::Method(allowed) => Reject::method(&allowed),
    })?;
    match route {
        Route::Page(file) => Ok(file.response()),
        Route::Overview => pretty_json(&ServerOverview::new(state)),
        Route::Server => json(&state.metadata),
        Route::Ready if state.is_draining() => Ok(empty(StatusCode::BAD_REQUEST)),
        Route::Live | Route::Ready => Ok(empty(StatusCode::OK)),
        Route::Metrics => {
            let models = state.registry.ready_models();
            // The files of /proc are read, which may take a while for thousands of connections.
            let text = run_blocking(move || metrics::metrics(&models)).await?;
            Ok(response("text/plain; version=0.0.4; charset=utf-8", [Bytes::from(text)]))
        }
        Route::Statistics => {
            let model_stats =
                state.registry.ready_models().iter().map(|served| served.statistics()).collect();
            json(&Statistics { model_stats })
        }
        Route::Index => index(state, parts, upload).await,
        Route::Load(name) => load(state, parts, upload, name).await,
        Route::Unload(name) => unload(state, parts, upload, name).await,
        Route::Model(target, ModelEndpoint::Infer) => infer::infer(state, parts, upload, &target).await,
        Route::OpenAi(route) => openai::answer(state, parts, upload, route).await,
        Route::Model(target, ModelEndpoint::Generate) => {
            openai::generate(state, parts, upload, &target, false).await
        }
        Route::Model(target, ModelEndpoint::GenerateStream) => {
            openai::generate(state, parts, upload, &target, true).await
        }
        Route::Model(target, about) => answer_model_endpoint(state, &target, about),
    }
}

fn answer_model_endpoint(state: &ServerState, target: &ModelTarget, about: ModelEndpoint) -> RouteResult {
    let served = state.registry.find(target);
    let served = match about {
        // Triton's status for an unknown model at these two endpoints.
        ModelEndpoint::Ready | ModelEndpoint::Statistics => {
            served.map_err(|error| Reject::bad_request(error.to_string()))?
        }
        _ => served.map_err(|error| Reject::kserve(&error))?,
    };
    match about {
        ModelEndpoint::Ready if state.is_draining() => {
            Err(Reject::bad_request("the server is shutting down"))
        }
        ModelEndpoint::Ready => Ok(empty(StatusCode::OK)),
        ModelEndpoint::Config => json(&*served.config),
        ModelEndpoint::Statistics => json(&Statistics { model_stats: vec![served.statistics()] }),
        ModelEndpoint::Metadata
        | ModelEndpoint::Infer
        | ModelEndpoint::Generate
        | ModelEndpoint::GenerateStream => {
            json(&served.config.metadata(state.registry.versions(&served.name)))
        }
    }
}

async fn index(state: &Arc<ServerState>, parts: &Parts, upload: &mut Upload) -> RouteResult {
    let options: IndexOptions = read_options(state, parts, upload).await?;
    let registry = state.registry.clone();
    let index = run_blocking(move || registry.index(options.ready)).await?;
    json(&index.map_err(|error| Reject::internal(error.to_string()))?)
}

async fn load(state: &Arc<ServerState>, parts: &Parts, upload: &mut Upload, name: String) -> RouteResult {
    let options: ChangeOptions = read_options(state, parts, upload).await?;
    if let Some(parameter) = options.parameters.keys().next() {
        let parameter = parameter.escape_debug();
        return Err(Reject::bad_request(format!("load takes no parameters here, and got `{parameter}`")));
    }
    change_models(state, name.clone(), state.registry.clone().load(name)).await
}

async fn unload(state: &Arc<ServerState>, parts: &Parts, upload: &mut Upload, name: String) -> RouteResult {
    // `unload_dependents` is accepted: no model depends on another one.
    let _: ChangeOptions = read_options(state, parts, upload).await?;
    change_models(state, name.clone(), state.registry.clone().unload(name)).await
}

/// Runs a load or unload to its end, even if the client goes away.
async fn change_models(
    state: &ServerState,
    name: String,
    change: impl Future<Output = Result<(), ChangeError>> + Send + 'static,
) -> RouteResult {
    if state.is_draining() {
        return Err(Reject::draining());
    }
    let changed = tokio::spawn(change).await.unwrap_or(Err(ChangeError::Panicked));
    changed.map_err(|not_changed| match not_changed {
        ChangeError::NoRepository => {
            let error = "models can be loaded and unloaded only if the server was started with a repository";
            Reject::new(StatusCode::SERVICE_UNAVAILABLE, error)
        }
        ChangeError::NotInRepository => {
            let error = format!("the repository has no model `{}`", name.escape_debug());
            Reject::new(StatusCode::NOT_FOUND, error)
        }
        ChangeError::Failed(error) => Reject::internal(error.to_string()),
        ChangeError::Panicked => Reject::internal(format!("loading `{}` panicked", name.escape_debug())),
    })?;
    Ok(empty(StatusCode::OK))
}

/// Reads and parses a small JSON body; an empty body stands for the defaults.
async fn read_options<T: for<'de> Deserialize<'de> + Default>(
    state: &ServerState,
    parts: &Parts,
    upload: &mut Upload,
) -> Result<T, Reject> {
    let body = state.body(parts, upload).await?;
    if body.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(&body).map_err(|error| Reject::bad_request(format!("the body: {error}")))
}

/// Body of `POST /v2/repository/index`.
#[derive(Debug, Default, Deserialize)]
struct IndexOptions {
    #[serde(default)]
    ready: bool,
}

/// Body of a `load` or `unload` request.
#[derive(Debug, Default, Deserialize)]
struct ChangeOptions {
    #[serde(default)]
    parameters: serde_json::Map<String, serde_json::Value>,
}

/// Refuses requests sent by web pages, which could otherwise reach servers that listen only on this machine; the server's own page may
/// send some. Browsers mark such requests with `Origin` or `Sec-Fetch-Site`, and pages cannot change either.
fn refuse_web_pages(headers: &HeaderMap) -> Result<(), Reject> {
    const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
    let is_own = |origin: &HeaderValue| {
        let origin = origin.as_bytes();
        let origin = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
        origin.is_some_and(|origin| headers.get(HOST).is_some_and(|host| host.as_bytes() == origin))
    };
    let has_other_origin = !headers.get_all(ORIGIN).iter().all(is_own);
    let has_other_site = headers.get(FETCH_SITE).is_some_and(|site| site != "none" && site != "same-origin");
    if has_other_origin || has_other_site {
        return Err(Reject::new(StatusCode::FORBIDDEN, "requests of web pages are refused"));
    }
    Ok(())
}

/// Refuses a request that expects anything but `100 Continue`, which is the only expectation that HTTP defines.
fn refuse_unknown_expectations(headers: &HeaderMap) -> Result<(), Reject> {
    let Some(unknown) = expectations(headers).find(|expected| !is_continue(expected)) else { return Ok(()) };
    let unknown = String::from_utf8_lossy(unknown);
    let error =
        format!("the server meets no expectation but 100-continue, and got `{}`", unknown.escape_debug());
    Err(Reject::new(StatusCode::EXPECTATION_FAILED, error))
}

/// Returns the items of the request's `Expect` headers.
fn expectations(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let items = headers.get_all(EXPECT).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    items.map(<[u8]>::trim_ascii).filter(|item| !item.is_empty())
}

fn is_continue(expectation: &[u8]) -> bool {
    expectation.eq_ignore_ascii_case(b"100-continue")
}

/// Guard that counts a request as in flight until it is dropped.
struct InFlight(Arc<ServerState>);

impl InFlight {
    fn new(state: Arc<ServerState>) -> Self {
        state.in_flight.send_modify(|count| *count = count.saturating_add(1));
        Self(state)
    }

    /// Wraps a part of the response, so that the request stays in flight until the part is dropped.
    fn hold(self: Arc<Self>, bytes: Bytes) -> Bytes {
        Bytes::from_owner(InFlightBytes { bytes, _request: self })
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.send_modify(|count| *count = count.saturating_sub(1));
    }
}

struct InFlightBytes {
    bytes: Bytes,
    _request: Arc<InFlight>,
}

impl AsRef<[u8]> for InFlightBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Log record of a request, reported when dropped: when the request ends or its client goes away.
struct RequestLog {
    observer: Arc<dyn ServerObserver>,
    client: SocketAddr,
    method: String,
    path: String,
    since: Instant,
    status: Option<u16>,
    received: u64,
    sent: u64,
    error: Option<String>,
}

impl RequestLog {
    fn new(observer: Arc<dyn ServerObserver>, client: SocketAddr, parts: &Parts) -> Self {
        let path = parts.uri.path_and_query().map_or_else(|| parts.uri.to_string(), ToString::to_string);
        let (method, since) = (parts.method.to_string(), Instant::now());
        Self { observer, client, method, path, since, status: None, received: 0, sent: 0, error: None }
    }
}

impl Drop for RequestLog {
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
        self.observer.event(&ServerEvent::Request(&ended));
    }
}
