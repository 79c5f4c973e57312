//! Checks the host that a request names, so that a web page cannot read a server of its visitor's network.
//!
//! A page may resolve its own name to 127.0.0.1 (DNS rebinding). To the browser, the server is then part of the page's site,
//! and its requests have neither `Origin` nor `Sec-Fetch-Site`. They still name the page's host, and a page cannot choose
//! another one.
//!
//! Facts: RFC 9110, section 7.2, RFC 9112, section 3.2, and RFC 3986, section 3.2.2.

use std::net::{Ipv4Addr, Ipv6Addr};

use hyper::header::HOST;
use hyper::http::request::Parts;
use hyper::{StatusCode, Version};

use crate::error::{Error, Result};
use crate::reject::Reject;

/// Longest host name in bytes, without a final dot.
const NAME_MAX: usize = 253;

/// Hosts that requests may name: `localhost`, every IP address, and the names that the options list.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllowedHosts {
    /// Names in lower case, without a final dot.
    names: Vec<String>,
}

impl AllowedHosts {
    /// Creates the set of hosts with further names.
    ///
    /// # Errors
    /// [`Error::HostName`] when one of them is not a host name, such as a name with a port.
    pub(crate) fn new(names: &[String]) -> Result<Self> {
        let parse = |name: &String| {
            let host = normalized(name);
            let is_valid = is_host_name(&host) || is_ip_literal(&host);
            if is_valid { Ok(host) } else { Err(Error::HostName { name: name.clone() }) }
        };
        Ok(Self { names: names.iter().map(parse).collect::<Result<_>>()? })
    }

    /// Checks the `Host` header of a request, and the host in its target if the target is a whole URL.
    pub(crate) fn check(&self, request: &Parts) -> Result<(), Reject> {
        let mut headers = request.headers.get_all(HOST).iter();
        match (headers.next(), headers.next()) {
            (Some(_), Some(_)) => return Err(Reject::bad_request("a request has one Host header, not two")),
            (Some(host), None) => {
                self.check_authority(&String::from_utf8_lossy(host.as_bytes()))?;
            }
            // HTTP/1.0 has no Host header, and browsers do not speak it.
            (None, _) if request.version < Version::HTTP_11 => {}
            (None, _) => return Err(Reject::bad_request("the request has no Host header")),
        }
        match request.uri.authority() {
            Some(authority) => self.check_authority(authority.as_str()),
            None => Ok(()),
        }
    }

    fn check_authority(&self, authority: &str) -> Result<(), Reject> {
        if self.contains(authority) {
            return Ok(());
        }
        let error = format!(
            "the host `{}` is not one of this server's names: use its IP address or localhost, or start the server with this \
             name",
            authority.escape_debug()
        );
        Err(Reject::new(StatusCode::FORBIDDEN, error))
    }

    /// Returns true if `authority`, a host with an optional port, is one of these hosts.
    fn contains(&self, authority: &str) -> bool {
        let Some(host) = without_port(authority) else { return false };
        let host = normalized(host);
        host == "localhost" || is_ip_literal(&host) || self.names.contains(&host)
    }
}

/// Splits the port off a host with an optional port; `None` if the port is not a port number.
fn without_port(authority: &str) -> Option<&str> {
    // The colons of an IPv6 address are between brackets.
    let host_end = authority.find(']').map_or(0, |bracket| bracket.saturating_add(1));
    let (host, port) = match authority.get(host_end..)?.find(':') {
        Some(colon) => {
            let (host, port) = authority.split_at_checked(host_end.saturating_add(colon))?;
            (host, port.strip_prefix(':')?)
        }
        None => (authority, ""),
    };
    let is_port =
        port.bytes().all(|byte| byte.is_ascii_digit()) && (port.is_empty() || port.parse::<u16>().is_ok());
    is_port.then_some(host)
}

/// Returns the host in lower case, without the final dot of a name that is complete.
fn normalized(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// Returns true for an IPv4 address, and for an IPv6 address in brackets with an optional zone.
fn is_ip_literal(host: &str) -> bool {
    let Some(inner) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) else {
        return host.parse::<Ipv4Addr>().is_ok();
    };
    let (address, zone) =
        inner.split_once('%').map_or((inner, None), |(address, zone)| (address, Some(zone)));
    let is_zone = |zone: &str| {
        !zone.is_empty() && zone.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
    };
    address.parse::<Ipv6Addr>().is_ok() && zone.is_none_or(is_zone)
}

/// Returns true for a name of ASCII letters, digits, `-` and `_` in parts that dots separate.
fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    name.len() <= NAME_MAX && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn localhost_addresses_and_listed_names_are_allowed() {
        let hosts = AllowedHosts::new(&["Models.example".to_owned(), "box_1.".to_owned()]).expect("names");
        for host in [
            "localhost",
            "LOCALHOST:8000",
            "localhost.",
            "localhost:",
            "127.0.0.1",
            "127.0.0.1:8000",
            "10.1.2.3:65535",
            "[::1]",
            "[::1]:8000",
            "[FE80::1%eth0]:80",
            "[::ffff:127.0.0.1]",
            "models.example",
            "MODELS.EXAMPLE.:80",
            "box_1",
        ] {
            assert!(hosts.contains(host), "{host}");
        }
    }

    #[test]
    fn every_other_host_is_refused() {
        let hosts = AllowedHosts::new(&["models.example".to_owned()]).expect("names");
        for host in [
            "",
            ".",
            ":80",
            "evil.example",
            "localhost.evil.example",
            "evil.localhost",
            "localhost..",
            "localhost, localhost",
            "localhost:80:80",
            "localhost:65536",
            "localhost:8o",
            "localhost:+80",
            "user@localhost",
            "localhost@evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1@evil.example",
            "127.1",
            "0127.0.0.1",
            "2130706433",
            "::1",
            "[::1",
            "::1]",
            "[::1]evil",
            "[::1].evil.example:80",
            "[::1]]",
            "[127.0.0.1]",
            "[v1.x]",
            "[::1%]",
            "[::1%a/b]",
            "x.models.example",
            "models.example.evil",
            "models.example/",
            "löcalhost",
            "\u{17f}localhost",
        ] {
            assert!(!hosts.contains(host), "{host}");
        }
    }

    #[test]
    fn an_option_that_is_not_a_host_name_is_refused() {
        for name in [
            "",
            ".",
            "*",
            "*.example",
            "models.example:80",
            "http://models.example",
            "a..b",
            "a b",
            "é.example",
        ] {
            let error = AllowedHosts::new(&[name.to_owned()]).expect_err(name);
            assert!(matches!(error, Error::HostName { .. }), "{name}");
        }
        assert!(AllowedHosts::new(&["a".repeat(254)]).is_err());
    }
}
