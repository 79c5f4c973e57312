//! Keys that clients have to know.

use std::fmt;
use std::hint::black_box;

use byte_source::Sha256;
use hyper::header::{AUTHORIZATION, HeaderMap};

use crate::error::{Error, Result};

/// Keys of which a request has to send one, as `Authorization: Bearer KEY`; without any, every request is answered.
///
/// Only hashes are kept, so that a key is in no log, and comparing them takes the same time for any key.
#[derive(Clone, Default)]
pub struct ApiKeys(Vec<[u8; 32]>);

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.0.len())
    }
}

impl ApiKeys {
    /// Creates the set of these keys.
    ///
    /// # Errors
    /// [`Error::ApiKey`] when a key is empty or has other characters than visible ASCII, which no header can carry.
    pub fn new<'k>(keys: impl IntoIterator<Item = &'k str>) -> Result<Self> {
        let hash = |key: &str| {
            let is_valid = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
            if is_valid { Ok(Sha256::of(key.as_bytes())) } else { Err(Error::ApiKey) }
        };
        Ok(Self(keys.into_iter().map(hash).collect::<Result<_>>()?))
    }

    /// Returns true if no key is needed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that a request has one of the keys; the error says what is wrong.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        if self.is_empty() {
            return Ok(());
        }
        let Some(header) = headers.get(AUTHORIZATION) else {
            return Err("the request has no API key: send it as `Authorization: Bearer KEY`");
        };
        let given = header
            .as_bytes()
            .split_at_checked(7)
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
        let hash = given.map(|(_, key)| Sha256::of(key.trim_ascii()));
        if hash.is_some_and(|hash| self.contains(&hash)) {
            return Ok(());
        }
        Err("the API key is wrong")
    }

    /// Compares a hash with each of the keys, in a time that depends on neither.
    fn contains(&self, hash: &[u8; 32]) -> bool {
        let is_same = |key: &[u8; 32]| {
            black_box(key.iter().zip(hash).fold(0, |difference, (a, b)| difference | (a ^ b))) == 0
        };
        self.0.iter().fold(false, |found, key| found | is_same(key))
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn one_of_the_keys_is_needed() {
        let keys = ApiKeys::new(["first", "second"]).expect("keys");
        let check = |value: &'static str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))]);
            keys.check(&headers).is_ok()
        };
        for right in ["Bearer first", "bearer second", "Bearer  first"] {
            assert!(check(right), "{right}");
        }
        for wrong in ["first", "Bearer", "Bearer ", "Bearer firs", "Bearer firstsecond", "Basic first", ""] {
            assert!(!check(wrong), "{wrong}");
        }
        assert!(keys.check(&HeaderMap::new()).is_err());
        assert!(ApiKeys::default().check(&HeaderMap::new()).is_ok());
        assert_eq!(format!("{keys:?}"), "2 keys");
        assert!(["", "a b", "é", "a\n"].iter().all(|key| ApiKeys::new([*key]).is_err()));
    }
}
