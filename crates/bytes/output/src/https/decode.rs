//! Decoding of HTTP content encodings.

use std::io::{self, BufRead, BufReader, Read};

use ureq::Body;
use url::Url;

use super::failure::DownloadFailure;
use crate::Error;

/// Bytes decoded at a time, and so the bytes between two calls of the observer.
pub(super) const BUFFER: usize = 128 << 10;

pub(super) fn decode(url: &Url, body: Body, encoding: &str) -> Result<Box<dyn Read>, DownloadFailure> {
    let body = body.into_with_config().limit(u64::MAX).reader();
    let failed = |reason| DownloadFailure::Final(Error::Request { url: url.to_string(), reason });
    Ok(match encoding {
        "identity" | "" => Box::new(body),
        "gzip" | "x-gzip" => Box::new(flate2::read::MultiGzDecoder::new(body)),
        "zstd" => Box::new(zstd::stream::read::Decoder::new(body).map_err(failed)?),
        "br" => Box::new(brotli_decompressor::Decompressor::new(body, BUFFER)),
        "deflate" => inflate(body).map_err(failed)?,
        other => {
            return Err(DownloadFailure::Final(Error::Encoding {
                url: url.to_string(),
                encoding: other.to_owned(),
            }));
        }
    })
}

/// Decodes `deflate`, which means a zlib stream, although some servers send the deflate stream without a zlib header.
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
