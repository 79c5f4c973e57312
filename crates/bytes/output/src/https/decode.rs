//! Content encodings: what the bytes were before they were encoded.

use std::io::{self, BufRead, BufReader, Read};

use ureq::Body;
use url::Url;

use super::failure::Failure;
use crate::Error;

/// Bytes that are decoded at a time, and so the bytes between two calls of the progress function.
pub(super) const BUFFER: usize = 128 << 10;

/// The decoded bytes of a body.
pub(super) fn decode(url: &Url, body: Body, encoding: &str) -> Result<Box<dyn Read>, Failure> {
    let body = body.into_with_config().limit(u64::MAX).reader();
    let failed = |reason| Failure::Final(Error::Request { url: url.to_string(), reason });
    Ok(match encoding {
        "identity" | "" => Box::new(body),
        "gzip" | "x-gzip" => Box::new(flate2::read::MultiGzDecoder::new(body)),
        "zstd" => Box::new(zstd::stream::read::Decoder::new(body).map_err(failed)?),
        "br" => Box::new(brotli_decompressor::Decompressor::new(body, BUFFER)),
        "deflate" => inflate(body).map_err(failed)?,
        other => {
            return Err(Failure::Final(Error::Encoding { url: url.to_string(), encoding: other.to_owned() }));
        }
    })
}

/// `deflate` means a zlib stream, but some servers send the deflate stream without its zlib header.
fn inflate(body: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    let mut body = BufReader::new(body);
    let is_zlib = match body.fill_buf()? {
        [first, second, ..] => {
            first & 0x0f == 8 && (u16::from(*first) << 8 | u16::from(*second)).is_multiple_of(31)
        }
        _ => true,
    };
    Ok(if is_zlib {
        Box::new(flate2::bufread::ZlibDecoder::new(body))
    } else {
        Box::new(flate2::bufread::DeflateDecoder::new(body))
    })
}
