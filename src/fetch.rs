//! A file over HTTP, in constant memory: resumed where a connection breaks, its SHA-256 checked as it
//! comes.
//!
//! LINKS is part of a file that may be hostile, so the addresses that a name resolves to are looked at
//! before anything connects: private and loopback ones are refused, as are they behind redirects. With
//! [`Rules::allow_http`] a URL of LINKS may name one itself; what it redirects to may then be private too.
//! Proxies are not used: they would connect to addresses that were never looked at.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use carton_format::sha256_to_hex;
use mapped::WINDOW;
use sha2::{Digest, Sha256};
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Body};
use url::Url;

/// Redirects that are followed, as browsers do.
const REDIRECTS: usize = 10;
/// How often a download goes on after a broken connection.
const TRIES: usize = 5;
/// A connection on which nothing comes for so long is broken.
const STALLED: Duration = Duration::from_secs(30);
/// The encodings that the specification asks readers to know.
const ENCODINGS: &str = "zstd, gzip, br, deflate";

/// What a download may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Whether http URLs are fetched, and those that name a private address.
    pub(crate) allow_http: bool,
}

/// Fetches the file with this hash from `url` into `out`, which may hold the beginning of it.
pub(crate) fn fetch(
    url: &str,
    sha256: &[u8; 32],
    out: &mut File,
    rules: Rules,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let mut last = None;
    for _ in 0..TRIES {
        let (mut hash, start) = hashed(out)?;
        let mut response = match open(url, start, rules) {
            Ok(response) => response,
            // A server that cannot go on from here may start again.
            Err(error) if start > 0 && last.is_none() => {
                out.set_len(0)?;
                last = Some(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        if start > 0 && !response.continues {
            out.set_len(0)?;
            out.rewind()?;
            hash = Sha256::new();
        }
        let from = if response.continues { start } else { 0 };
        match receive(&mut *response.body, out, &mut hash, from, progress) {
            Ok(()) => {
                let found: [u8; 32] = hash.finalize().into();
                if found == *sha256 {
                    return Ok(());
                }
                out.set_len(0)?;
                bail!(
                    "the file there has SHA-256 {}, expected {}",
                    sha256_to_hex(&found),
                    sha256_to_hex(sha256)
                );
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| anyhow::anyhow!("nothing came")))
}

/// The hash of what is there already, and its length; the file stands at its end then.
fn hashed(out: &mut File) -> io::Result<(Sha256, u64)> {
    let mut hash = Sha256::new();
    out.rewind()?;
    let mut buffer = vec![0; WINDOW];
    loop {
        let read = out.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hash.update(buffer.get(..read).unwrap_or_default());
    }
    let len = out.seek(SeekFrom::End(0))?;
    Ok((hash, len))
}

fn receive(
    body: &mut dyn Read,
    out: &mut File,
    hash: &mut Sha256,
    start: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let mut buffer = vec![0; WINDOW / 8];
    let mut done = start;
    loop {
        let read = body.read(&mut buffer).context("the connection broke")?;
        if read == 0 {
            return Ok(());
        }
        let bytes = buffer.get(..read).unwrap_or_default();
        out.write_all(bytes).context("cannot write")?;
        hash.update(bytes);
        done = done.saturating_add(read as u64);
        progress(done);
    }
}

struct Response {
    /// Whether the bytes go on from where they were asked for.
    continues: bool,
    body: Box<dyn Read>,
}

/// Asks for the bytes from `start` on, through redirects.
fn open(url: &str, start: u64, rules: Rules) -> Result<Response> {
    let mut url = Url::parse(url).with_context(|| format!("`{}` is no URL", url.escape_debug()))?;
    let mut private = rules.allow_http;
    for _ in 0..=REDIRECTS {
        if url.scheme() != "https" && !(rules.allow_http && url.scheme() == "http") {
            bail!("{url} is not https; --allow-http fetches it anyway");
        }
        let guard = Guard { allow_private: private, met_private: Arc::default() };
        let met_private = Arc::clone(&guard.met_private);
        let agent = Agent::with_parts(config(), DefaultConnector::default(), guard);
        let mut request = agent.get(url.as_str());
        request = if start > 0 {
            request.header("range", format!("bytes={start}-")).header("accept-encoding", "identity")
        } else {
            request.header("accept-encoding", ENCODINGS)
        };
        let response = request.call().with_context(|| url.to_string())?;
        // Only what was private from the start may lead to more of it.
        private = private && met_private.load(Ordering::Relaxed);
        let status = response.status();
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        if status.is_redirection() {
            let location = header("location").with_context(|| format!("{url}: a redirect to nowhere"))?;
            url = url.join(location).with_context(|| format!("{url}: a redirect to no URL"))?;
            continue;
        }
        let continues = start > 0
            && status.as_u16() == 206
            && header("content-range").is_some_and(|range| range.starts_with(&format!("bytes {start}-")));
        if !continues && status.as_u16() != 200 {
            bail!("{url}: HTTP status {status}");
        }
        let encoding = header("content-encoding").unwrap_or("identity").to_ascii_lowercase();
        return Ok(Response { continues, body: decoded(response.into_body(), &encoding)? });
    }
    bail!("{url}: more than {REDIRECTS} redirects");
}

fn config() -> ureq::config::Config {
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .timeout_connect(Some(STALLED))
        .timeout_recv_response(Some(STALLED))
        .timeout_per_read(Some(STALLED))
        .user_agent(concat!("torch2carton/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// The bytes before their content encoding.
fn decoded(body: Body, encoding: &str) -> Result<Box<dyn Read>> {
    let body = body.into_with_config().limit(u64::MAX).reader();
    Ok(match encoding {
        "identity" | "" => Box::new(body),
        "gzip" | "x-gzip" => Box::new(flate2::read::MultiGzDecoder::new(body)),
        "zstd" => Box::new(zstd::stream::read::Decoder::new(body)?),
        "br" => Box::new(brotli_decompressor::Decompressor::new(body, WINDOW / 8)),
        "deflate" => deflated(body)?,
        other => bail!("content-encoding `{}` is not known", other.escape_debug()),
    })
}

/// `deflate` is a zlib stream, for which some servers send the bare one.
fn deflated(body: impl Read + 'static) -> Result<Box<dyn Read>> {
    use std::io::BufRead;
    let mut body = BufReader::new(body);
    let head = body.fill_buf()?;
    let zlib = match head {
        [first, second, ..] => {
            first & 0x0f == 8 && (u16::from(*first) << 8 | u16::from(*second)).is_multiple_of(31)
        }
        _ => true,
    };
    Ok(if zlib {
        Box::new(flate2::bufread::ZlibDecoder::new(body))
    } else {
        Box::new(flate2::bufread::DeflateDecoder::new(body))
    })
}

/// Resolves names, and refuses addresses that are not the Internet's.
#[derive(Debug)]
struct Guard {
    allow_private: bool,
    met_private: Arc<AtomicBool>,
}

impl Resolver for Guard {
    fn resolve(
        &self,
        uri: &Uri,
        config: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = DefaultResolver::default().resolve(uri, config, timeout)?;
        if let Some(address) = found.iter().find(|address| !is_public(address.ip())) {
            self.met_private.store(true, Ordering::Relaxed);
            if !self.allow_private {
                let text = format!("{} is a private address, from which nothing is fetched", address.ip());
                return Err(ureq::Error::Io(io::Error::new(io::ErrorKind::PermissionDenied, text)));
            }
        }
        Ok(found)
    }
}

/// Whether an address belongs to the Internet: none of the special ones of the IANA registries.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let shared = a == 100 && (64..128).contains(&b);
    let protocol = a == 192 && b == 0 && c == 0;
    let benchmark = a == 198 && (b == 18 || b == 19);
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_multicast()
        || a == 0
        || a >= 240
        || shared
        || protocol
        || benchmark)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(mapped) = address.to_ipv4_mapped() {
        return is_public_v4(mapped);
    }
    let [first, second, ..] = address.segments();
    // 2000::/3 is all that was given out; 2001:db8::/32 is for documents, 2002::/16 and 64:ff9b::/96 hold
    // IPv4 addresses.
    first & 0xe000 == 0x2000 && !(first == 0x2001 && second == 0xdb8) && first != 0x2002
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_known() {
        let public = |text: &str| is_public(text.parse().expect("an address"));
        for text in ["1.1.1.1", "93.184.216.34", "2606:4700::1111"] {
            assert!(public(text), "{text}");
        }
        for text in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "::1",
            "fe80::1",
            "fd00::1",
            "::ffff:127.0.0.1",
            "2002:7f00:1::",
            "224.0.0.1",
            "255.255.255.255",
            "64:ff9b::7f00:1",
        ] {
            assert!(!public(text), "{text}");
        }
    }
}
