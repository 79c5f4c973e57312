//! Sends requests and follows redirects, except to private addresses.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ureq::http::{Response, Uri};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Body};
use url::Url;

use super::Download;
use super::accept::header;
use super::failure::DownloadFailure;
use crate::Error;

/// Largest number of redirects to follow; browsers follow as many or more.
const REDIRECTS_MAX: usize = 10;
/// Content encodings that the Carton specification asks readers to support.
const SUPPORTED_ENCODINGS: &str = "zstd, gzip, br, deflate";

impl Download<'_> {
    /// Requests the bytes from `start` on and follows redirects. Returns the last URL and its response.
    pub(super) fn follow(&self, start: u64) -> Result<(Url, Response<Body>), DownloadFailure> {
        let mut url = Url::parse(self.url)
            .map_err(|reason| DownloadFailure::Final(Error::NotAUrl { url: self.url.to_owned(), reason }))?;
        let mut allow_private = self.options.allow_http;
        for _ in 0..=REDIRECTS_MAX {
            check_scheme(&url, self.options.allow_http).map_err(DownloadFailure::Final)?;
            let (response, met_private) = self.request(&url, start, allow_private)?;
            // Only a private address may redirect to another private address.
            allow_private = allow_private && met_private;
            if !response.status().is_redirection() {
                return Ok((url, response));
            }
            url = redirect_target(&url, &response).map_err(DownloadFailure::Final)?;
        }
        Err(DownloadFailure::Final(Error::TooManyRedirects { url: url.into(), limit: REDIRECTS_MAX }))
    }

    /// Sends one request. Returns the response, and true if the host resolved to a private address.
    fn request(
        &self,
        url: &Url,
        start: u64,
        allow_private: bool,
    ) -> Result<(Response<Body>, bool), DownloadFailure> {
        let met_private = Arc::new(AtomicBool::new(false));
        let guard =
            AddressGuard { allow_private, met_private: Arc::clone(&met_private), is_public: self.is_public };
        let agent = Agent::with_parts(config(self.options.timeout), DefaultConnector::default(), guard);
        let request = agent.get(url.as_str());
        let request = if start > 0 {
            request.header("range", format!("bytes={start}-")).header("accept-encoding", "identity")
        } else {
            request.header("accept-encoding", SUPPORTED_ENCODINGS)
        };
        match request.call() {
            Ok(response) => Ok((response, met_private.load(Ordering::Relaxed))),
            Err(error) => {
                let error = transport_error(url, error);
                // With `start` > 0, the server has answered before, so it may answer again.
                Err(if start > 0 { DownloadFailure::Resume(error) } else { DownloadFailure::Final(error) })
            }
        }
    }
}

fn check_scheme(url: &Url, allow_http: bool) -> Result<(), Error> {
    match url.scheme() {
        "https" => Ok(()),
        "http" if allow_http => Ok(()),
        "http" => Err(Error::Insecure { url: url.to_string() }),
        _ => Err(Error::NotHttps { url: url.to_string() }),
    }
}

fn redirect_target(url: &Url, response: &Response<Body>) -> Result<Url, Error> {
    let Some(location) = header(response, "location") else {
        return Err(Error::RedirectNowhere { url: url.to_string() });
    };
    url.join(location).map_err(|reason| Error::RedirectTarget { url: url.to_string(), reason })
}

fn transport_error(url: &Url, error: ureq::Error) -> Error {
    let (url, reason) = (url.to_string(), error.into_io());
    match reason.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(PrivateAddress(address)) => Error::PrivateAddress { url, address: *address },
        None => Error::Request { url, reason },
    }
}

fn config(timeout: Duration) -> ureq::config::Config {
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .timeout_resolve(Some(timeout))
        .timeout_connect(Some(timeout))
        .timeout_recv_response(Some(timeout))
        .timeout_per_read(Some(timeout))
        .user_agent(concat!("torch2carton/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Resolver that refuses host names with a private address, unless they are allowed.
#[derive(Debug)]
struct AddressGuard {
    allow_private: bool,
    met_private: Arc<AtomicBool>,
    is_public: fn(IpAddr) -> bool,
}

impl Resolver for AddressGuard {
    fn resolve(
        &self,
        uri: &Uri,
        config: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = DefaultResolver::default().resolve(uri, config, timeout)?;
        let private = found.iter().map(SocketAddr::ip).find(|address| !(self.is_public)(*address));
        if let Some(address) = private {
            self.met_private.store(true, Ordering::Relaxed);
            if !self.allow_private {
                let refused = io::Error::new(io::ErrorKind::PermissionDenied, PrivateAddress(address));
                return Err(ureq::Error::Io(refused));
            }
        }
        Ok(found)
    }
}

/// Private address that the guard refused, passed through the HTTP client as an I/O error.
#[derive(Debug)]
struct PrivateAddress(IpAddr);

impl fmt::Display for PrivateAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is a private address", self.0)
    }
}

impl StdError for PrivateAddress {}
