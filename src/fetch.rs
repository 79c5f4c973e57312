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
/// How often in a row a download is taken up again without a byte more than before.
const TRIES: u32 = 5;
/// How long the first of these waits; each of the next waits twice as long.
const PAUSE: Duration = Duration::from_millis(100);
/// The encodings that the specification asks readers to know.
const ENCODINGS: &str = "zstd, gzip, br, deflate";

/// What a download may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Whether http URLs are fetched, and those that name a private address.
    pub(crate) allow_http: bool,
    /// A connection on which nothing comes for so long is broken.
    pub(crate) stalled: Duration,
    /// Which addresses are the Internet's: [`is_public`], but in tests.
    pub(crate) is_public: fn(IpAddr) -> bool,
    /// The most bytes that a file may have. LINKS tells no lengths, so a server could send without end.
    pub(crate) limit: u64,
}

/// Told the bytes that are there, and how many there will be where the server says so.
pub(crate) type Told<'t> = &'t mut dyn FnMut(u64, Option<u64>);

/// Why a file did not come.
enum Failure {
    /// The connection broke: what is there stays, and another one goes on from it.
    Broken(anyhow::Error),
    /// What is there does not belong to the file, or the server cannot go on from it.
    Anew(anyhow::Error),
    /// This URL is of no use.
    Useless(anyhow::Error),
}

/// Fetches the file with this hash from `url` into `out`, which may hold the beginning of it.
pub(crate) fn fetch(
    url: &str,
    sha256: &[u8; 32],
    out: &mut File,
    rules: Rules,
    told: Told<'_>,
) -> Result<()> {
    let (mut tries, mut most, mut began_anew) = (0_u32, 0_u64, false);
    loop {
        let (hash, start) = hashed(out)?;
        if start > 0 && <[u8; 32]>::from(hash.clone().finalize()) == *sha256 {
            return Ok(());
        }
        let error = match attempt(url, sha256, out, (hash, start), rules, told) {
            Ok(()) => return Ok(()),
            Err(Failure::Useless(error)) => return Err(error),
            Err(Failure::Anew(error)) => {
                out.set_len(0)?;
                if began_anew {
                    return Err(error);
                }
                began_anew = true;
                continue;
            }
            Err(Failure::Broken(error)) => error,
        };
        let there = out.metadata()?.len();
        if there > most {
            (tries, most) = (0, there);
        }
        tries = tries.saturating_add(1);
        if tries >= TRIES {
            return Err(error);
        }
        std::thread::sleep(PAUSE.saturating_mul(2_u32.saturating_pow(tries.saturating_sub(1))));
    }
}

/// One connection's worth of the file, behind the `start` bytes that are there and hashed.
fn attempt(
    url: &str,
    sha256: &[u8; 32],
    out: &mut File,
    (mut hash, start): (Sha256, u64),
    rules: Rules,
    told: Told<'_>,
) -> Result<(), Failure> {
    let useless = |error: io::Error| Failure::Useless(error.into());
    let mut response = open(url, start, rules)?;
    let from = if response.continues { start } else { 0 };
    if from == 0 {
        hash = Sha256::new();
        out.set_len(0).map_err(useless)?;
        out.rewind().map_err(useless)?;
    }
    let total = response.len.map(|len| from.saturating_add(len));
    let too_large = || {
        let limit = rules.limit;
        Failure::Useless(anyhow::anyhow!(
            "{url}: the file there has more than {limit} bytes; --max-size allows them"
        ))
    };
    if total.is_some_and(|total| total > rules.limit) {
        return Err(too_large());
    }
    let mut buffer = vec![0; WINDOW / 8];
    let mut done = from;
    loop {
        let read = match response.body.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // What is encoded and cut short looks damaged.
            Err(error) => return Err(Failure::Broken(anyhow::Error::new(error).context(broke(url)))),
        };
        done = done.saturating_add(read as u64);
        if done > rules.limit {
            // What came is of no use to anyone.
            out.set_len(0).map_err(useless)?;
            return Err(too_large());
        }
        let came = buffer.get(..read).unwrap_or_default();
        out.write_all(came).context("cannot write").map_err(Failure::Useless)?;
        hash.update(came);
        told(done, total);
    }
    let found: [u8; 32] = hash.finalize().into();
    if found == *sha256 {
        return Ok(());
    }
    out.set_len(0).map_err(useless)?;
    let (found, expected) = (sha256_to_hex(&found), sha256_to_hex(sha256));
    let error = anyhow::anyhow!("{url}: the file there has SHA-256 {found}, expected {expected}");
    // Where bytes of another connection or another server came first, these may be the wrong ones.
    Err(if from > 0 { Failure::Anew(error) } else { Failure::Useless(error) })
}

fn broke(url: &str) -> String {
    format!("{url}: the connection broke")
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

struct Response {
    /// Whether the bytes go on from where they were asked for.
    continues: bool,
    /// How many bytes will come, where that is known.
    len: Option<u64>,
    body: Box<dyn Read>,
}

/// Asks for the bytes from `start` on, through redirects.
fn open(first: &str, start: u64, rules: Rules) -> Result<Response, Failure> {
    let useless = |error: anyhow::Error| Failure::Useless(error);
    let mut url = Url::parse(first)
        .with_context(|| format!("`{}` is no URL", first.escape_debug()))
        .map_err(useless)?;
    let mut private = rules.allow_http;
    for _ in 0..=REDIRECTS {
        match url.scheme() {
            "https" => {}
            "http" if rules.allow_http => {}
            "http" => {
                let text = format!("{url} is not https; --allow-http fetches it anyway");
                return Err(useless(anyhow::anyhow!(text)));
            }
            _ => return Err(useless(anyhow::anyhow!("{url} is no https URL"))),
        }
        let guard = Guard { allow_private: private, met_private: Arc::default(), is_public: rules.is_public };
        let met_private = Arc::clone(&guard.met_private);
        let agent = Agent::with_parts(config(rules.stalled), DefaultConnector::default(), guard);
        let mut request = agent.get(url.as_str());
        request = if start > 0 {
            request.header("range", format!("bytes={start}-")).header("accept-encoding", "identity")
        } else {
            request.header("accept-encoding", ENCODINGS)
        };
        let response = request.call().map_err(|error| {
            let error = match error {
                ureq::Error::Io(error) => anyhow::Error::new(error),
                error => anyhow::Error::new(error),
            };
            let error = error.context(url.to_string());
            // A server that answered before may do so again.
            if start > 0 { Failure::Broken(error) } else { Failure::Useless(error) }
        })?;
        // Only what was private from the start may lead to more of it.
        private = private && met_private.load(Ordering::Relaxed);
        let status = response.status();
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        if status.is_redirection() {
            let location = header("location").with_context(|| format!("{url}: a redirect to nowhere"));
            let next = location.and_then(|location| {
                url.join(location).with_context(|| format!("{url}: a redirect to no URL"))
            });
            url = next.map_err(useless)?;
            continue;
        }
        let encoding = header("content-encoding").unwrap_or("identity").to_ascii_lowercase();
        let is_plain = matches!(encoding.as_str(), "identity" | "");
        let is_rest = status.as_u16() == 206
            && is_plain
            && header("content-range").is_some_and(|range| range.starts_with(&format!("bytes {start}-")));
        let error = || anyhow::anyhow!("{url}: HTTP status {status}");
        match status.as_u16() {
            200 => {}
            206 if start > 0 && is_rest => {}
            // It cannot go on from here.
            206 | 416 if start > 0 => return Err(Failure::Anew(error())),
            _ => return Err(useless(error())),
        }
        let len = header("content-length").filter(|_| is_plain).and_then(|len| len.parse().ok());
        let body = decoded(response.into_body(), &encoding);
        let body = body.with_context(|| url.to_string()).map_err(useless)?;
        return Ok(Response { continues: is_rest, len, body });
    }
    Err(useless(anyhow::anyhow!("{url}: more than {REDIRECTS} redirects")))
}

fn config(stalled: Duration) -> ureq::config::Config {
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .timeout_resolve(Some(stalled))
        .timeout_connect(Some(stalled))
        .timeout_recv_response(Some(stalled))
        .timeout_per_read(Some(stalled))
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
    is_public: fn(IpAddr) -> bool,
}

impl Resolver for Guard {
    fn resolve(
        &self,
        uri: &Uri,
        config: &ureq::config::Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = DefaultResolver::default().resolve(uri, config, timeout)?;
        if let Some(address) = found.iter().find(|address| !(self.is_public)(address.ip())) {
            self.met_private.store(true, Ordering::Relaxed);
            if !self.allow_private {
                let text = format!(
                    "{} is a private address, from which nothing is fetched; --allow-http does where LINKS \
                     itself names one",
                    address.ip()
                );
                return Err(ureq::Error::Io(io::Error::new(io::ErrorKind::PermissionDenied, text)));
            }
        }
        Ok(found)
    }
}

/// Whether an address belongs to the Internet: none of the special ones of the IANA registries.
pub(crate) fn is_public(address: IpAddr) -> bool {
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

    /// A server on an address of loopback that answers each request with a redirect.
    fn redirects(address: &str, location: String) -> String {
        use std::io::{BufRead, BufReader};
        let listener = std::net::TcpListener::bind((address, 0)).expect("loopback");
        let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
                lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
                let _ =
                    write!(stream, "HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
            }
        });
        url
    }

    #[test]
    fn only_what_is_private_leads_to_what_is_private() {
        // Here the Internet is what begins with 127.0.0.2: all of 127 is loopback.
        let is_public = |address: IpAddr| address.to_string() == "127.0.0.2";
        let limit = u64::MAX;
        let rules = Rules { allow_http: true, stalled: Duration::from_secs(10), is_public, limit };
        let end = redirects("127.0.0.1", "http://127.0.0.2:1/end".to_owned());
        let private = redirects("127.0.0.1", end.clone());
        let public = redirects("127.0.0.2", end);
        let refused = |url: &str| {
            let mut out = tempfile::tempfile().expect("a temporary folder");
            let error = fetch(url, &[0; 32], &mut out, rules, &mut |_, _| {}).expect_err("nobody has it");
            let text = format!("{error:#}");
            let refused = text.contains("127.0.0.1 is a private address");
            assert!(refused || text.contains("http://127.0.0.2:1/end"), "it is followed to its end: {text}");
            refused
        };
        assert!(!refused(&private));
        assert!(refused(&public), "from the Internet into a private network");
        // Once it has left, it does not come back.
        let back = redirects("127.0.0.1", redirects("127.0.0.2", private.clone()));
        assert!(refused(&back));
        assert!(!refused(&redirects("127.0.0.1", private)));
    }

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
