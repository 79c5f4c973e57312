//! Requests ranges of a file: follows redirects, checks the answers, and tries again.

use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ureq::http::Response;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Body};
use url::Url;

use crate::address::shown_url;
use crate::answer::{Accepted, RequestedBytes, Version, accept, header};
use crate::body::{DOCUMENT_LEN, connection_error, finish, message, receive, receive_document, slowest};
use crate::guard::{AddressGuard, PrivateAddress, PrivateHosts};
use crate::ip::is_public_address;
use crate::proxies::Proxies;
use crate::range_buffers::{RangeBuffer, RangeBuffers};
use crate::retry::{Failure, Tries, retry_after};
use crate::target::{Part, RangeTarget};
use crate::{Error, RemoteOptions, Result};

/// Largest number of redirects to follow; browsers follow as many or more.
const REDIRECTS_MAX: usize = 10;
/// Time after which there is no service that gives an instance its credentials.
#[cfg(feature = "buckets")]
const METADATA_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes that are taken from a connection at a time.
const RECEIVED: usize = 256 << 10;
/// HTTP client with a pool of connections.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) options: RemoteOptions,
    /// Client for addresses that the user typed.
    pub(crate) typed: Agent,
    /// Client for the services that give an instance in a cloud its credentials. Elsewhere, nothing answers.
    #[cfg(feature = "buckets")]
    pub(crate) metadata: Agent,
    /// Client for redirects of public hosts.
    public: Agent,
    private_hosts: PrivateHosts,
    pub(crate) proxies: Proxies,
    pub(crate) buffers: RangeBuffers,
}

impl Client {
    /// Creates a client.
    ///
    /// # Errors
    /// [`Error::Certificates`].
    pub(crate) fn new(options: &RemoteOptions) -> Result<Self> {
        Self::with_public_addresses(options, is_public_address)
    }

    pub(crate) fn with_public_addresses(
        options: &RemoteOptions,
        is_public: fn(IpAddr) -> bool,
    ) -> Result<Self> {
        let private_hosts = PrivateHosts::default();
        let tls = tls_config(options.certificates.as_deref())?;
        let agent = |allow_private, timeout| {
            let private_hosts = PrivateHosts::clone(&private_hosts);
            let guard = AddressGuard { allow_private, private_hosts, is_public };
            Agent::with_parts(config(timeout, tls.clone()), DefaultConnector::default(), guard)
        };
        Ok(Self {
            typed: agent(options.allow_http, options.timeout),
            public: agent(false, options.timeout),
            #[cfg(feature = "buckets")]
            metadata: agent(true, METADATA_TIMEOUT),
            private_hosts,
            proxies: Proxies::from_env(),
            buffers: RangeBuffers::default(),
            options: options.clone(),
        })
    }

    /// Requests a range. When a connection breaks, the next one goes on from there.
    ///
    /// # Errors
    /// When the server refuses, sends something else, or breaks several connections in a row; when the file is not the
    /// one of `version`.
    pub(crate) fn fetch(
        &self,
        target: &RangeTarget,
        asked: &RequestedBytes,
        version: Option<&Version>,
    ) -> Result<Part> {
        let start = Instant::now();
        let mut version = version.cloned();
        let (mut range, mut received) = (None::<Range<u64>>, self.buffers.take(0));
        let (mut tries, is_stopped) = (Tries::default(), || self.options.is_stopped());
        loop {
            let rest = match &range {
                Some(range) => RequestedBytes::Range(range.start.saturating_add(received.len())..range.end),
                None => asked.clone(),
            };
            let before = received.len();
            let outcome = self.connect(target, &rest).and_then(|accepted| {
                if let Some(version) = &version {
                    version.check(&accepted.version, &target.address)?;
                }
                if range.is_none() {
                    received = self.buffers.take(accepted.range.end.saturating_sub(accepted.range.start));
                    range = Some(accepted.range);
                }
                version.get_or_insert(accepted.version);
                let Some(body) = accepted.body else { return Ok(()) };
                Ok(receive(
                    &self.options,
                    &mut body.into_reader(),
                    &mut received,
                    true,
                    start,
                    &target.address,
                )?)
            });
            match outcome {
                Ok(()) => {
                    return Ok(Part {
                        range: range.unwrap_or_default(),
                        bytes: received.into(),
                        version: version.unwrap_or_default(),
                    });
                }
                Err(failure) => {
                    tries.try_again(failure, received.len() > before, self.options.timeout, &is_stopped)?;
                }
            }
        }
    }

    /// Requests consecutive ranges of a file by one request, and hands over each when it is complete. `next` is called with the
    /// number of a range before bytes of it are received, and ends the request if it returns false.
    ///
    /// # Errors
    /// Those of [`fetch`](Self::fetch). The ranges before the error were handed over.
    pub(crate) fn fetch_run(
        &self,
        target: &RangeTarget,
        ranges: &[Range<u64>],
        version: &Version,
        next: &mut dyn FnMut(usize) -> bool,
        done: &mut dyn FnMut(usize, Bytes),
    ) -> Result<()> {
        let end = ranges.last().map_or(0, |last| last.end);
        let mut number = 0_usize;
        let mut received = None::<RangeBuffer>;
        // Of the range that is received; a connection that breaks does not give it more time.
        let mut start = Instant::now();
        let (mut tries, is_stopped) = (Tries::default(), || self.options.is_stopped());
        while let Some(range) = ranges.get(number) {
            let before = (number, received.as_ref().map_or(0, RangeBuffer::len));
            let rest = range.start.saturating_add(before.1)..end;
            let outcome = self.connect(target, &RequestedBytes::Range(rest.clone())).and_then(|accepted| {
                version.check(&accepted.version, &target.address)?;
                let mut reader = accepted.body.map(Body::into_reader);
                while let (Some(range), Some(reader)) = (ranges.get(number), &mut reader) {
                    if received.is_none() {
                        if !next(number) {
                            return Err(Error::Cancelled(byte_source::Cancelled).into());
                        }
                        start = Instant::now();
                    }
                    let len = range.end.saturating_sub(range.start);
                    let buffer = received.get_or_insert_with(|| self.buffers.take(len));
                    let is_last = range.end == end;
                    receive(&self.options, reader, buffer, is_last, start, &target.address)?;
                    done(number, received.take().map_or_else(Bytes::new, Bytes::from));
                    number = number.saturating_add(1);
                }
                Ok(())
            });
            match outcome {
                Ok(()) if number >= ranges.len() => return Ok(()),
                Ok(()) => {
                    let reason = format!("it has no body, expected the bytes from {} on", rest.start);
                    return Err(Error::Answer { address: target.address.clone(), reason });
                }
                Err(failure) => {
                    let has_more = (number, received.as_ref().map_or(0, RangeBuffer::len)) != before;
                    tries.try_again(failure, has_more, self.options.timeout, &is_stopped)?;
                }
            }
        }
        Ok(())
    }

    /// Requests a document of unknown length, which has at most `limit` bytes.
    ///
    /// # Errors
    /// When the server refuses, or breaks several connections in a row, or the document is longer.
    pub(crate) fn document(&self, target: &RangeTarget, limit: u64) -> Result<Vec<u8>> {
        let mut tries = Tries::default();
        loop {
            let outcome = self.follow(target, None, DOCUMENT_LEN).and_then(|(response, _)| {
                if response.status() != 200 {
                    let reason = format!("its status is {}", response.status().as_u16());
                    return Err(Error::Answer { address: target.address.clone(), reason }.into());
                }
                Ok(receive_document(&self.options, response, limit, &target.address)?)
            });
            match outcome {
                Ok(document) => return Ok(document),
                Err(failure) => {
                    tries.try_again(failure, false, self.options.timeout, &|| self.options.is_stopped())?;
                }
            }
        }
    }

    /// Follows redirects, and checks the response that is not one.
    fn connect(&self, target: &RangeTarget, asked: &RequestedBytes) -> Result<Accepted, Failure> {
        let (response, commit) = self.follow(target, Some(&asked.header()), asked.len_max())?;
        let mut accepted = accept(response, asked, &target.address)?;
        accepted.version.commit = commit;
        Ok(accepted)
    }

    /// Requests a range, or the whole file, and follows redirects. Returns the last answer, and the commit that the Hub named in one of
    /// them. The largest number of bytes of the body, `len`, decides how long it may take.
    pub(crate) fn follow(
        &self,
        target: &RangeTarget,
        range: Option<&str>,
        len: u64,
    ) -> Result<(Response<Body>, Option<String>), Failure> {
        let address = || target.address.clone();
        if self.options.offline {
            return Err(Error::Offline { address: address() }.into());
        }
        let mut url = target.url.clone();
        let (mut allow_private, mut commit) = (true, None);
        for _ in 0..=REDIRECTS_MAX {
            match url.scheme() {
                "https" => {}
                "http" if self.options.allow_http => {}
                "http" => return Err(Error::Insecure { address: shown_url(&url) }.into()),
                scheme => {
                    let scheme = scheme.to_owned();
                    return Err(Error::RedirectScheme { address: address(), scheme }.into());
                }
            }
            let agent = if allow_private { &self.typed } else { &self.public };
            let token = target.token.as_ref().filter(|_| url.origin() == target.url.origin());
            let response = self.request(agent, &url, range, len, token).map_err(|reason| match reason {
                Sent::Private(ip) => Error::PrivateAddress { address: shown_url(&url), ip }.into(),
                Sent::Broken(reason) => Failure::from(connection_error(&target.address, &reason)),
            })?;
            if header(&response, "x-repo-commit").is_some() && url.origin() == target.url.origin() {
                commit = header(&response, "x-repo-commit").map(str::to_owned);
            }
            if !response.status().is_redirection() {
                return check_status(response, target).map(|response| (response, commit));
            }
            // Only a host in a private network may redirect into one.
            let hosts = self.private_hosts.lock().unwrap_or_else(PoisonError::into_inner);
            allow_private = allow_private && hosts.contains(url.host_str().unwrap_or_default());
            let Some(location) = header(&response, "location") else {
                let reason = format!("its status is {}, and it names no URL", response.status().as_u16());
                return Err(Error::Answer { address: address(), reason }.into());
            };
            url = url.join(location).map_err(|reason| Error::Answer {
                address: address(),
                reason: format!("it redirects to no URL: {reason}"),
            })?;
            finish(response);
        }
        Err(Error::Redirects { address: address(), limit: REDIRECTS_MAX }.into())
    }

    fn request(
        &self,
        agent: &Agent,
        url: &Url,
        range: Option<&str>,
        len: u64,
        token: Option<&String>,
    ) -> Result<Response<Body>, Sent> {
        self.options.counter.add_request();
        let proxy = self.proxies.for_url(url);
        let limit = slowest(self.options.timeout, len);
        let config = agent.get(url.as_str()).config().proxy(proxy);
        let request = config.timeout_recv_body(Some(limit)).build();
        let mut request = request.header("accept-encoding", "identity");
        if let Some(range) = range {
            request = request.header("range", range);
        }
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.call().map_err(|error| {
            let reason = error.into_io();
            let refused = reason.get_ref().and_then(|inner| inner.downcast_ref());
            if let Some(PrivateAddress(ip)) = refused { Sent::Private(*ip) } else { Sent::Broken(reason) }
        })
    }
}

/// Reason why there is no answer.
enum Sent {
    Private(IpAddr),
    Broken(io::Error),
}

/// Returns the answer, or the error that its status is.
fn check_status(response: Response<Body>, target: &RangeTarget) -> Result<Response<Body>, Failure> {
    let status = response.status().as_u16();
    if matches!(status, 200 | 206 | 416) {
        return Ok(response);
    }
    let pause = header(&response, "retry-after").and_then(retry_after);
    let message = message(response);
    let address = target.address.clone();
    let error = match status {
        401 | 403 => Error::Denied { address, status, message, has_token: target.token.is_some() },
        404 => Error::NotFound { address, message },
        410 => Error::Gone { address, message },
        _ => Error::Status { address, status, message },
    };
    Err(Failure { error, pause })
}

fn tls_config(certificates: Option<&Path>) -> Result<TlsConfig> {
    let Some(path) = certificates else { return Ok(TlsConfig::default()) };
    let fail = |reason: String| Error::Certificates { path: path.display().to_string(), reason };
    let text = std::fs::read(path).map_err(|reason| fail(reason.to_string()))?;
    let mut certificates = Vec::new();
    for item in parse_pem(&text) {
        if let PemItem::Certificate(certificate) = item.map_err(|reason| fail(reason.to_string()))? {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        return Err(fail("there is no certificate in it".to_owned()));
    }
    Ok(TlsConfig::builder().root_certs(RootCerts::new_with_certs(&certificates)).build())
}

fn config(timeout: Duration, tls: TlsConfig) -> ureq::config::Config {
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .tls_config(tls)
        .timeout_resolve(Some(timeout))
        .timeout_connect(Some(timeout))
        .timeout_recv_response(Some(timeout))
        .timeout_per_read(Some(timeout))
        .input_buffer_size(RECEIVED)
        .max_idle_connections_per_host(16)
        .max_idle_connections(32)
        .user_agent(concat!("torch2carton/", env!("CARGO_PKG_VERSION")))
        .build()
}
