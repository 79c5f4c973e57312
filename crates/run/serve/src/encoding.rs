//! Compresses and decompresses bodies, by the `Content-Encoding` of requests and the `Accept-Encoding` of clients.
//!
//! Facts: RFC 9110 (`Accept-Encoding`, quality values) and RFC 9112; `deflate` is the zlib format, which clients of Triton
//! send.

use std::io::{self, Read, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};

use crate::budget::Charge;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentEncoding {
    Identity,
    Gzip,
    Deflate,
}

/// Reason for which a body cannot be decompressed.
#[derive(Debug)]
pub(crate) enum InflateError {
    TooLarge,
    NoMemory,
    Damaged(io::Error),
    Trailing,
}

impl ContentEncoding {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        let name = name.trim();
        if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
            Some(Self::Gzip)
        } else if name.eq_ignore_ascii_case("deflate") {
            Some(Self::Deflate)
        } else if name.is_empty() || name.eq_ignore_ascii_case("identity") {
            Some(Self::Identity)
        } else {
            None
        }
    }

    /// Parses the value of a `Content-Encoding` header; `None` for an unknown coding or several codings.
    pub(crate) fn from_content_encoding(header: &str) -> Option<Self> {
        Self::from_name(header)
    }

    /// Chooses the coding with the highest quality in the client's `Accept-Encoding` headers; the first one wins a tie.
    pub(crate) fn negotiate<'h>(headers: impl Iterator<Item = &'h str>) -> Self {
        let mut best = (0, Self::Identity);
        for item in headers.flat_map(|header| header.split(',')) {
            let (name, parameters) = item.split_once(';').unwrap_or((item, ""));
            let encoding = match name.trim() {
                "*" => Some(Self::Gzip),
                "" => None,
                name => Self::from_name(name),
            };
            if let (Some(encoding), Some(quality)) = (encoding, quality(parameters))
                && quality > best.0
            {
                best = (quality, encoding);
            }
        }
        best.1
    }

    /// Decompresses `body` into at most `limit` bytes, which count in `charge`.
    pub(crate) fn inflate(
        self,
        body: &[u8],
        limit: usize,
        charge: &mut Charge,
    ) -> Result<Vec<u8>, InflateError> {
        match self {
            Self::Identity => {
                if !charge.grow(body.len()) {
                    return Err(InflateError::NoMemory);
                }
                Ok(body.to_vec())
            }
            // A gzip body may have several members, so this decoder reads to the end of the body.
            Self::Gzip => inflate_bounded(&mut MultiGzDecoder::new(body), limit, charge),
            Self::Deflate => {
                let mut decoder = ZlibDecoder::new(body);
                let bytes = inflate_bounded(&mut decoder, limit, charge)?;
                if decoder.total_in() == body.len() as u64 { Ok(bytes) } else { Err(InflateError::Trailing) }
            }
        }
    }

    /// Compresses the concatenation of `parts`.
    ///
    /// # Errors
    /// Never in practice: writing into memory does not fail. The type is that of the writer.
    pub(crate) fn compress(self, parts: &[Bytes]) -> io::Result<Vec<u8>> {
        match self {
            Self::Identity => Ok(parts.concat()),
            Self::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                parts.iter().try_for_each(|part| encoder.write_all(part))?;
                encoder.finish()
            }
            Self::Deflate => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
                parts.iter().try_for_each(|part| encoder.write_all(part))?;
                encoder.finish()
            }
        }
    }
}

fn inflate_bounded(from: &mut impl Read, limit: usize, charge: &mut Charge) -> Result<Vec<u8>, InflateError> {
    let mut bytes = Vec::new();
    let mut window = [0; 16 << 10];
    loop {
        let count = match from.read(&mut window) {
            Ok(0) => return Ok(bytes),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(InflateError::Damaged(error)),
        };
        if bytes.len().saturating_add(count) > limit {
            return Err(InflateError::TooLarge);
        }
        if !reserve_charged(&mut bytes, count, limit, charge) {
            return Err(InflateError::NoMemory);
        }
        bytes.extend_from_slice(window.get(..count).unwrap_or_default());
    }
}

/// Reserves capacity for `count` more bytes and charges for it; false if the budget has no room. Capacity doubles up to
/// `limit`.
pub(crate) fn reserve_charged(bytes: &mut Vec<u8>, count: usize, limit: usize, charge: &mut Charge) -> bool {
    let needed = bytes.len().saturating_add(count);
    if needed <= bytes.capacity() {
        return true;
    }
    let wanted = needed.max(bytes.capacity().saturating_mul(2).min(limit)).max(1 << 10);
    let before = bytes.capacity();
    if !charge.grow(wanted.saturating_sub(before)) {
        return false;
    }
    bytes.reserve_exact(wanted.saturating_sub(bytes.len()));
    true
}

/// Parses the quality among the parameters of an `Accept-Encoding` item, in thousandths; `None` if the quality is malformed.
fn quality(parameters: &str) -> Option<u32> {
    let value = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
    });
    let Some(value) = value else { return Some(1000) };
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    let whole: u32 = whole.parse().ok().filter(|whole| *whole <= 1)?;
    if fraction.len() > 3 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let thousandths: u32 = format!("{fraction:0<3}").parse().ok()?;
    Some(whole.saturating_mul(1000).saturating_add(thousandths).min(1000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::MemoryBudget;

    #[test]
    fn qualities_have_at_most_three_digits() {
        assert_eq!(quality("q=0.125"), Some(125));
        assert_eq!(quality("q=0.1250"), None);
        assert_eq!(quality("q=1.000"), Some(1000));
        assert_eq!(quality("q=2"), None);
        assert_eq!(quality("level=9"), Some(1000));
    }

    #[test]
    fn requests() {
        assert_eq!(ContentEncoding::from_content_encoding("GZIP"), Some(ContentEncoding::Gzip));
        assert_eq!(ContentEncoding::from_content_encoding(" deflate "), Some(ContentEncoding::Deflate));
        assert_eq!(ContentEncoding::from_content_encoding("identity"), Some(ContentEncoding::Identity));
        assert_eq!(ContentEncoding::from_content_encoding(""), Some(ContentEncoding::Identity));
        assert_eq!(ContentEncoding::from_content_encoding("br"), None);
        assert_eq!(ContentEncoding::from_content_encoding("gzip, gzip"), None);
    }

    #[test]
    fn qualities() {
        let best = |header: &str| ContentEncoding::negotiate([header].into_iter());
        assert_eq!(best(""), ContentEncoding::Identity);
        assert_eq!(best("gzip"), ContentEncoding::Gzip);
        assert_eq!(best("deflate"), ContentEncoding::Deflate);
        assert_eq!(best("gzip, deflate"), ContentEncoding::Gzip);
        assert_eq!(best("deflate, gzip"), ContentEncoding::Deflate);
        assert_eq!(best("gzip;q=0.5, deflate;q=0.51"), ContentEncoding::Deflate);
        assert_eq!(best("gzip; Q=0.5 , deflate ;q=0.499"), ContentEncoding::Gzip);
        assert_eq!(best("gzip;q=0"), ContentEncoding::Identity);
        assert_eq!(best("gzip;q=0.000, identity;q=0.1"), ContentEncoding::Identity);
        assert_eq!(best("identity, gzip;q=0.9"), ContentEncoding::Identity);
        assert_eq!(best("br, zstd"), ContentEncoding::Identity);
        assert_eq!(best("*"), ContentEncoding::Gzip);
        assert_eq!(best("gzip;q=2, deflate;q=0.1234, br;q=x"), ContentEncoding::Identity);
        assert_eq!(ContentEncoding::negotiate(["br", "deflate"].into_iter()), ContentEncoding::Deflate);
    }

    #[test]
    fn bodies_come_back_and_are_bounded() {
        let parts = [Bytes::from_static(b"hello "), Bytes::from(vec![7; 100_000])];
        let whole = parts.concat();
        let budget = MemoryBudget::new(1 << 20);
        for encoding in [ContentEncoding::Identity, ContentEncoding::Gzip, ContentEncoding::Deflate] {
            let body = encoding.compress(&parts).expect("memory");
            let inflated = encoding.inflate(&body, whole.len(), &mut budget.charge());
            assert_eq!(inflated.expect("it fits"), whole);
        }
        for encoding in [ContentEncoding::Gzip, ContentEncoding::Deflate] {
            let body = encoding.compress(&parts).expect("memory");
            let inflate = |body: &[u8], limit| encoding.inflate(body, limit, &mut budget.charge());
            assert!(matches!(inflate(&body, whole.len() - 1), Err(InflateError::TooLarge)));
            assert!(matches!(inflate(&body[..body.len() - 1], whole.len()), Err(InflateError::Damaged(_))));
            assert!(inflate(&[&body[..], b"x"].concat(), whole.len()).is_err(), "bytes after the end");
            assert!(matches!(inflate(b"junk", 10), Err(InflateError::Damaged(_))));
            let small = MemoryBudget::new(50_000);
            let mut charge = small.charge();
            assert!(matches!(encoding.inflate(&body, 1 << 20, &mut charge), Err(InflateError::NoMemory)));
        }
    }
}
