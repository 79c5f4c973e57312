//! Sends the requests of object stores through the client that all other requests take.

use std::fmt;
use std::future::Future;
use std::io::Read;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use object_store::ClientOptions;
use object_store::azure::{AzureAuthorizer, AzureCredentialProvider};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use ureq::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, header};
use ureq::{Agent, Body, Proxy};
use url::Url;

use crate::address::shown_url;
use crate::answer::parse_content_range;
use crate::body::{DOCUMENT_LEN, slowest};
use crate::client::Client;
use crate::guard::PrivateAddress;
use crate::range_buffers::RangeBuffers;
use crate::retry::{pause, retry_after};
use crate::{BucketService, Error, Result};

/// Hosts of the services that give an instance in a cloud its credentials.
const METADATA_HOSTS: &[&str] = &[
    "169.254.169.254",
    "169.254.170.2",
    "169.254.170.23",
    "[fd00:ec2::254]",
    "metadata.google.internal",
    "metadata",
];
/// Variables that name other services of this kind, by a URL or a host.
const METADATA_VARIABLES: &[&str] = &[
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AWS_METADATA_ENDPOINT",
    "AZURE_MSI_ENDPOINT",
    "GCE_METADATA_HOST",
    "GCE_METADATA_IP",
    "GCE_METADATA_ROOT",
    "IDENTITY_ENDPOINT",
];
/// Largest body of an answer to a request without a range, such as one page of a listing.
const ANSWER_MAX: u64 = 64 << 20;
/// Time of an object of which the service does not say one.
const NO_TIME: &str = "Thu, 01 Jan 1970 00:00:00 GMT";
/// Headers of Google: the generation that must be at the target of a request, where 0 stands for none, and the object to copy.
const GENERATION_MATCH: HeaderName = HeaderName::from_static("x-goog-if-generation-match");
const COPY_SOURCE: HeaderName = HeaderName::from_static("x-goog-copy-source");
/// Entity tag of an object of which the service does not say one.
pub(crate) const NO_ETAG: &str = "\"no-etag\"";

/// What must be at the target when a multipart upload is completed, or an object is copied to it. `object_store` has no option for
/// that.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    Absent,
    Version { etag: Option<String>, generation: Option<String> },
}

impl Condition {
    /// Returns the header that asks a service for the condition; `None` for an object without an entity tag or a generation.
    fn header(&self, service: BucketService) -> Option<(HeaderName, HeaderValue)> {
        match (service, self) {
            (BucketService::Google, Self::Absent) => Some((GENERATION_MATCH, HeaderValue::from_static("0"))),
            (BucketService::Google, Self::Version { generation, .. }) => {
                Some((GENERATION_MATCH, HeaderValue::from_str(generation.as_ref()?).ok()?))
            }
            (_, Self::Absent) => Some((header::IF_NONE_MATCH, HeaderValue::from_static("*"))),
            (_, Self::Version { etag, .. }) => {
                Some((header::IF_MATCH, HeaderValue::from_str(etag.as_ref()?).ok()?))
            }
        }
    }
}

/// Credentials and account of an Azure container, whose signatures cover the headers of conditions.
pub(crate) type AzureSigner = (AzureCredentialProvider, String);

/// Gives object stores the client of this crate.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) client: Arc<Client>,
    pub(crate) service: BucketService,
    pub(crate) azure: Option<AzureSigner>,
    /// Condition of the requests that complete an upload, or at Google copy an object. It is known once all parts are sent.
    pub(crate) condition: Arc<OnceLock<Condition>>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

impl HttpService for Connector {
    /// Sends a request and waits: each caller is a thread of its own.
    fn call<'s, 'f>(
        &'s self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            let (request, is_conditional) = self.add_condition(request).await.map_err(http_error)?;
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let request = ureq::http::Request::from_parts(parts, body);
            let answer = self.exchange(request, is_conditional);
            let (parts, body) = answer.map_err(http_error)?.into_parts();
            Ok(HttpResponse::from_parts(
                parts,
                HttpResponseBody::new(Full::new(body).map_err(|e| match e {})),
            ))
        })
    }
}

/// Converts an error for the object store, which tries again after some kinds.
fn http_error(error: Error) -> HttpError {
    let kind = if error.is_passing() { HttpErrorKind::Interrupted } else { HttpErrorKind::Unknown };
    HttpError::new(kind, error)
}

impl Connector {
    /// Adds the condition to the request that completes an upload, or at Google copies it. Returns true if it has one.
    async fn add_condition(&self, mut request: HttpRequest) -> Result<(HttpRequest, bool)> {
        let query = request.uri().query().unwrap_or_default();
        let has = |part: &str| query.split('&').any(|it| it.starts_with(part));
        let completes = match *request.method() {
            _ if self.service == BucketService::Google => request.headers().contains_key(COPY_SOURCE),
            Method::POST => has("uploadId="),
            Method::PUT => has("comp=blocklist"),
            _ => false,
        };
        let condition = self.condition.get().filter(|_| completes);
        let Some((name, value)) = condition.and_then(|condition| condition.header(self.service)) else {
            return Ok((request, false));
        };
        request.headers_mut().insert(name, value);
        let signature = request.headers().get(header::AUTHORIZATION);
        let is_signed = signature.is_some_and(|text| text.as_bytes().starts_with(b"SharedKey "));
        if let (true, Some((credentials, account))) = (is_signed, &self.azure) {
            let failed = |error: object_store::Error| Error::Connection {
                address: "az://".to_owned(),
                reason: error.to_string(),
            };
            let credential = credentials.get_credential().await.map_err(failed)?;
            request.headers_mut().remove(header::AUTHORIZATION);
            AzureAuthorizer::new(&credential, account).try_authorize(&mut request).map_err(failed)?;
        }
        Ok((request, true))
    }

    fn exchange(&self, request: ureq::http::Request<Bytes>, is_conditional: bool) -> Result<Response<Bytes>> {
        let options = &self.client.options;
        let url = Url::parse(&request.uri().to_string());
        let url =
            url.map_err(|_| Error::Address { address: "a bucket".to_owned(), expected: "https://HOST" })?;
        let address = shown_url(&url);
        if options.offline {
            return Err(Error::Offline { address });
        }
        let is_metadata = is_metadata(&url, &|name| std::env::var(name).ok());
        if url.scheme() == "http" && !options.allow_http && !is_metadata {
            return Err(Error::Insecure { address });
        }
        let agent = if is_metadata { &self.client.metadata } else { &self.client.typed };
        let range = range_len(request.headers());
        let has_body = request.method() != Method::HEAD;
        options.counter.add_request();
        let proxy = self.client.proxies.for_url(&url).filter(|_| !is_metadata);
        let response =
            send(agent, request, options.timeout, range.unwrap_or(DOCUMENT_LEN), proxy).map_err(|error| {
                let reason = error.into_io();
                let refused = reason.get_ref().and_then(|inner| inner.downcast_ref());
                match refused {
                    Some(PrivateAddress(ip)) => Error::PrivateAddress { address: address.clone(), ip: *ip },
                    None => Error::Connection { address: address.clone(), reason: reason.to_string() },
                }
            })?;
        let (mut parts, body) = response.into_parts();
        // A store refuses an answer without these, and nothing here needs them.
        parts.headers.entry(header::LAST_MODIFIED).or_insert(HeaderValue::from_static(NO_TIME));
        parts.headers.entry(header::ETAG).or_insert(HeaderValue::from_static(NO_ETAG));
        self.wait_as_asked(parts.status.as_u16(), &parts.headers, &address)?;
        if range.is_some() && parts.status == 200 {
            return Err(Error::NoRanges { address });
        }
        if is_conditional && matches!(parts.status.as_u16(), 409 | 412) {
            return Err(Error::Conflict { address });
        }
        if !has_body {
            return Ok(Response::from_parts(parts, Bytes::new()));
        }
        let encoding = parts.headers.get(header::CONTENT_ENCODING).and_then(|text| text.to_str().ok());
        // Amazon keeps `aws-chunked` if the program that wrote an object said so.
        let is_plain = |text: &str| matches!(text.trim(), "" | "identity" | "aws-chunked");
        if let Some(encoding) = encoding.filter(|text| range.is_some() && !text.split(',').all(is_plain)) {
            let reason = format!("it is encoded as {encoding}, which was not asked for");
            return Err(Error::Answer { address, reason });
        }
        let limit = range.filter(|_| parts.status == 206).unwrap_or(ANSWER_MAX);
        let is_range = range.is_some() && parts.status == 206;
        if is_range {
            check_range(&parts.headers, body.content_length(), &address)?;
        }
        let body = self.receive_all(body, limit, is_range, &address)?;
        // A store refuses an answer without its length.
        parts.headers.entry(header::CONTENT_LENGTH).or_insert(HeaderValue::from(body.len()));
        Ok(Response::from_parts(parts, body))
    }

    /// Receives a body of at most `limit` bytes. Of a range whose connection breaks, what came is returned, because the rest is
    /// requested from there.
    fn receive_all(&self, body: Body, limit: u64, is_range: bool, address: &str) -> Result<Bytes> {
        let options = &self.client.options;
        let start = Instant::now();
        let announced = body.content_length();
        let mut reader = body.into_reader();
        let mut received = match announced {
            Some(len) => self.client.buffers.take(len.min(limit)),
            None => RangeBuffers::take_up_to(limit),
        };
        let mut beyond = [0];
        loop {
            let room = received.room();
            let is_full = room.is_empty();
            let count = reader.read(if is_full { &mut beyond } else { room });
            let (total, after) = (received.len(), start.elapsed());
            let breaks = !matches!(count, Ok(1..)) && announced.is_none_or(|len| total < len)
                || is_full && count.is_err();
            if is_range && breaks && total > 0 && after <= slowest(options.timeout, total) {
                return Ok(received.into());
            }
            let count = count.map_err(|reason| {
                let address = address.to_owned();
                if after > slowest(options.timeout, total) {
                    return Error::Slow { address, received: total, expected: limit, after };
                }
                Error::Connection { address, reason: reason.to_string() }
            })?;
            if count == 0 {
                if announced.is_some_and(|len| total < len) || is_range && total == 0 {
                    let reason = format!("the connection ended after {total} bytes");
                    return Err(Error::Connection { address: address.to_owned(), reason });
                }
                return Ok(received.into());
            }
            if is_full {
                let reason = format!("it has more than the {limit} bytes that were asked for");
                return Err(Error::Answer { address: address.to_owned(), reason });
            }
            options.counter.add_bytes(count);
            received.add(count);
            if after > slowest(options.timeout, total) {
                return Err(Error::Slow {
                    address: address.to_owned(),
                    received: total,
                    expected: limit,
                    after,
                });
            }
            if options.is_stopped() {
                return Err(Error::Cancelled(byte_source::Cancelled));
            }
        }
    }
}

impl Connector {
    /// Waits for the time that an answer asks for, before the object store tries again.
    fn wait_as_asked(&self, status: u16, headers: &HeaderMap, address: &str) -> Result<()> {
        if !matches!(status, 429 | 503) {
            return Ok(());
        }
        let asked = headers.get(header::RETRY_AFTER).and_then(|text| retry_after(text.to_str().ok()?));
        let Some(seconds) = asked else { return Ok(()) };
        let (options, time) = (&self.client.options, Duration::from_secs(seconds));
        if time > options.timeout {
            return Err(Error::Wait { address: address.to_owned(), status, seconds });
        }
        pause(time, &|| options.is_stopped())
    }

    /// Asks Amazon for the region of a bucket; `None` if it does not say.
    pub(crate) fn region_of(&self, bucket: &str) -> Option<String> {
        if self.client.options.offline {
            return None;
        }
        self.client.options.counter.add_request();
        let url = format!("https://s3.amazonaws.com/{bucket}");
        let proxy = self.client.proxies.for_url(&Url::parse(&url).ok()?);
        let response = self.client.typed.head(url).config().proxy(proxy).build().call().ok()?;
        Some(response.headers().get("x-amz-bucket-region")?.to_str().ok()?.to_owned())
    }
}

/// Returns true for a URL of a service that gives an instance or a container its credentials, which sends them without
/// encryption, since it is on the same machine.
fn is_metadata(url: &Url, variable: &dyn Fn(&str) -> Option<String>) -> bool {
    let place = |url: &Url| Some((url.host_str()?.to_owned(), url.port_or_known_default()?));
    let named = |name: &&str| {
        let text = variable(name)?;
        let text = if text.contains("://") { text } else { format!("http://{text}") };
        place(&Url::parse(&text).ok()?)
    };
    METADATA_HOSTS.contains(&url.host_str().unwrap_or_default())
        || METADATA_VARIABLES.iter().filter_map(named).any(|named| Some(named) == place(url))
}

fn send(
    agent: &Agent,
    request: ureq::http::Request<Bytes>,
    timeout: Duration,
    len: u64,
    proxy: Option<Proxy>,
) -> Result<Response<Body>, ureq::Error> {
    if request.body().is_empty() && matches!(*request.method(), Method::GET | Method::HEAD | Method::DELETE) {
        let (parts, _) = request.into_parts();
        let request = ureq::http::Request::from_parts(parts, ());
        let config = agent.configure_request(request).proxy(proxy);
        return agent.run(config.timeout_recv_body(Some(slowest(timeout, len))).build());
    }
    let (parts, body) = request.into_parts();
    let limit = slowest(timeout, body.len() as u64);
    let request = ureq::http::Request::from_parts(parts, &body[..]);
    agent.run(
        agent
            .configure_request(request)
            .proxy(proxy)
            .timeout_send_body(Some(limit))
            .timeout_recv_body(Some(slowest(timeout, len)))
            .build(),
    )
}

/// Checks that an answer has one Content-Range, whose length is the one of the body.
fn check_range(headers: &HeaderMap, length: Option<u64>, address: &str) -> Result<()> {
    let wrong = |reason| Err(Error::Answer { address: address.to_owned(), reason });
    let Some(text) = headers.get(header::CONTENT_RANGE) else { return Ok(()) };
    if headers.get_all(header::CONTENT_RANGE).iter().any(|other| other != text) {
        return wrong("it has two Content-Ranges".to_owned());
    }
    // What the store cannot parse, it refuses.
    let range = text.to_str().ok().and_then(parse_content_range);
    match range.map(|(range, _)| range.end.saturating_sub(range.start)).zip(length) {
        Some((expected, found)) if expected != found => {
            wrong(format!("its Content-Length is {found}, expected {expected}"))
        }
        _ => Ok(()),
    }
}

/// Returns the number of bytes that a range asks for.
fn range_len(headers: &HeaderMap) -> Option<u64> {
    let (first, last) = headers.get(header::RANGE)?.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
    if first.is_empty() {
        return last.parse().ok();
    }
    last.parse::<u64>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1)
}
