//! Checks that an answer holds the bytes that were asked for.

use std::ops::Range;

use ureq::Body;
use ureq::http::Response;

use crate::{Error, Result};

/// Range of a file that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestedBytes {
    /// Bytes from the first offset up to the second one; the file may end before it.
    Range(Range<u64>),
    /// The last bytes of the file.
    Last(u64),
}

impl RequestedBytes {
    /// Returns the value of the `Range` header.
    pub(crate) fn header(&self) -> String {
        match self {
            Self::Range(range) => format!("bytes={}-{}", range.start, range.end.saturating_sub(1)),
            Self::Last(count) => format!("bytes=-{count}"),
        }
    }

    /// Returns the largest number of bytes of the answer.
    pub(crate) fn len_max(&self) -> u64 {
        match self {
            Self::Range(range) => range.end.saturating_sub(range.start),
            Self::Last(count) => *count,
        }
    }

    /// Returns the range in a file of `len` bytes.
    pub(crate) fn within(&self, len: u64) -> Range<u64> {
        match self {
            Self::Range(range) => range.start.min(len)..range.end.min(len),
            Self::Last(count) => len.saturating_sub(*count)..len,
        }
    }
}

/// What tells versions of a file apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) len: u64,
    pub(crate) etag: Option<String>,
    pub(crate) modified: Option<String>,
    /// Commit of the repository that the Hub read.
    pub(crate) commit: Option<String>,
}

impl Version {
    /// Fails if `now` is another version. A member that one of the answers lacks is not compared.
    pub(crate) fn check(&self, now: &Self, address: &str) -> Result<()> {
        let changed = |what, before: &str, now: &str| {
            let (before, now) = (before.to_owned(), now.to_owned());
            Err(Error::Changed { address: address.to_owned(), what, before, now })
        };
        if self.len != now.len {
            return changed("its length", &self.len.to_string(), &now.len.to_string());
        }
        // `If-Match` never accepts a weak validator, so they are compared here, without what says that they are weak: a server may
        // say it of some answers only.
        for (what, before, now) in [
            ("its ETag", &self.etag, &now.etag),
            ("its commit", &self.commit, &now.commit),
            ("its time", &self.modified, &now.modified),
        ] {
            if let (Some(before), Some(now)) = (before, now)
                && before.trim_start_matches("W/") != now.trim_start_matches("W/")
            {
                return changed(what, before, now);
            }
        }
        Ok(())
    }
}

pub(crate) struct Accepted {
    /// Range of the file that the body has.
    pub(crate) range: Range<u64>,
    pub(crate) version: Version,
    pub(crate) body: Option<Body>,
}

/// Accepts the answer to `asked`. An answer with the whole file is accepted if no more was asked for.
pub(crate) fn accept(response: Response<Body>, asked: &RequestedBytes, address: &str) -> Result<Accepted> {
    let wrong = |reason: String| Err(Error::Answer { address: address.to_owned(), reason });
    check_encoding(&response, address)?;
    let length: Option<u64> = header(&response, "content-length").and_then(|length| length.parse().ok());
    let (range, len) = match response.status().as_u16() {
        206 => {
            let text = header(&response, "content-range").unwrap_or_default();
            if response.headers().get_all("content-range").iter().any(|other| other != text) {
                return wrong("it has two Content-Ranges".to_owned());
            }
            let Some((range, len)) = parse_content_range(text) else {
                return wrong(format!("its Content-Range is `{text}`"));
            };
            let expected = asked.within(len);
            if range != expected {
                let Range { start, end } = expected;
                let end = end.saturating_sub(1);
                return wrong(format!("its Content-Range is `{text}`, expected bytes {start}-{end}"));
            }
            (range, len)
        }
        200 => {
            let text = header(&response, "content-range").unwrap_or_default();
            if !text.is_empty() && parse_content_range(text).is_none_or(|(range, len)| range != (0..len)) {
                return wrong(format!("its status is 200, and its Content-Range is `{text}`"));
            }
            let Some(len) = length.filter(|len| asked.within(*len) == (0..*len)) else {
                return Err(Error::NoRanges { address: address.to_owned() });
            };
            (0..len, len)
        }
        416 => {
            let text = header(&response, "content-range").unwrap_or_default();
            let len = text.strip_prefix("bytes */").and_then(|len| len.parse().ok());
            match (len, asked) {
                (Some(len), _) if asked.within(len).is_empty() => (0..0, len),
                // Some servers do not know ranges at the end.
                (_, RequestedBytes::Last(_)) => return Err(Error::NoRanges { address: address.to_owned() }),
                _ => return wrong(format!("it refuses the bytes {}", asked.header())),
            }
        }
        status => return wrong(format!("its status is {status}")),
    };
    let expected = range.end.saturating_sub(range.start);
    if length.is_some_and(|length| length != expected) && response.status() != 416 {
        return wrong(format!("its Content-Length is {}, expected {expected}", length.unwrap_or_default()));
    }
    let text = |name| header(&response, name).map(str::to_owned);
    let version = Version { len, etag: text("etag"), modified: text("last-modified"), commit: None };
    let has_body = response.status() != 416;
    Ok(Accepted { range, version, body: has_body.then(|| response.into_body()) })
}

/// Fails if the body is not the bytes of the file.
pub(crate) fn check_encoding(response: &Response<Body>, address: &str) -> Result<()> {
    let encoding = header(response, "content-encoding").unwrap_or("identity");
    if matches!(encoding.to_ascii_lowercase().as_str(), "" | "identity") {
        return Ok(());
    }
    let reason = format!("it is encoded as {encoding}, which was not asked for");
    Err(Error::Answer { address: address.to_owned(), reason })
}

/// Parses `bytes FIRST-LAST/LENGTH`.
pub(crate) fn parse_content_range(text: &str) -> Option<(Range<u64>, u64)> {
    let (range, len) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, len) = (first.parse().ok()?, last.parse::<u64>().ok()?, len.parse().ok()?);
    let end = last.checked_add(1)?;
    (first < end && end <= len).then_some((first..end, len))
}

pub(crate) fn header<'r>(response: &'r Response<Body>, name: &str) -> Option<&'r str> {
    response.headers().get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges_are_checked() {
        assert_eq!(parse_content_range("bytes 0-9/10"), Some((0..10, 10)));
        for text in
            ["bytes 0-9/*", "bytes 5-4/10", "bytes 0-10/10", "bytes 0-18446744073709551615/9", "0-9/10", ""]
        {
            assert_eq!(parse_content_range(text), None, "{text}");
        }
    }
}
