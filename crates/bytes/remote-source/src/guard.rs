//! Refuses hosts with addresses of private networks, which an address from elsewhere could use to reach them.

use std::collections::HashSet;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Hosts that were seen to have an address of a private network.
pub(crate) type PrivateHosts = Arc<Mutex<HashSet<String>>>;

/// Resolver that refuses addresses of private networks, unless they are allowed.
#[derive(Debug)]
pub(crate) struct AddressGuard {
    pub(crate) allow_private: bool,
    pub(crate) private_hosts: PrivateHosts,
    pub(crate) is_public: fn(IpAddr) -> bool,
}

impl Resolver for AddressGuard {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = DefaultResolver::default().resolve(uri, config, timeout)?;
        // The user's environment names the proxy, so it may be private.
        let is_proxy = config.proxy().is_some_and(|proxy| Some(proxy.host()) == uri.host());
        let private = found.iter().map(SocketAddr::ip).find(|address| !(self.is_public)(*address));
        if let Some(address) = private.filter(|_| !is_proxy) {
            let host = uri.host().unwrap_or_default().to_owned();
            self.private_hosts.lock().unwrap_or_else(PoisonError::into_inner).insert(host);
            if !self.allow_private {
                let refused = io::Error::new(io::ErrorKind::PermissionDenied, PrivateAddress(address));
                return Err(ureq::Error::Io(refused));
            }
        }
        Ok(found)
    }
}

/// Address of a private network that the guard refused, passed through the HTTP client as an I/O error.
#[derive(Debug)]
pub(crate) struct PrivateAddress(pub(crate) IpAddr);

impl fmt::Display for PrivateAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is an address of a private network", self.0)
    }
}

impl StdError for PrivateAddress {}
