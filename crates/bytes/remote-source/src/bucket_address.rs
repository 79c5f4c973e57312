//! Addresses of objects in buckets.

use std::fmt;

/// Address of an object, or of all objects below a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BucketAddress {
    pub service: BucketService,
    /// Bucket, or container at Azure.
    pub bucket: String,
    /// Name of the object, or the prefix without its last slash; empty for the whole bucket.
    pub key: String,
}

/// Service that has a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BucketService {
    /// `s3://`: Amazon S3 and services that speak as it does.
    Amazon,
    /// `gs://`: Google Cloud Storage.
    Google,
    /// `az://`: Azure Blob Storage.
    Azure,
}

impl BucketService {
    const ALL: [Self; 3] = [Self::Amazon, Self::Google, Self::Azure];

    /// Returns the scheme of its addresses.
    pub fn scheme(self) -> &'static str {
        match self {
            Self::Amazon => "s3",
            Self::Google => "gs",
            Self::Azure => "az",
        }
    }

    pub(crate) fn from_scheme(scheme: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.scheme() == scheme)
    }
}

impl BucketAddress {
    pub(crate) fn parse(service: BucketService, rest: &str) -> Option<Self> {
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.$".contains(c);
        let is_bucket = !bucket.is_empty() && bucket.chars().all(is_name);
        is_bucket.then(|| Self { service, bucket: bucket.to_owned(), key: key.trim_matches('/').to_owned() })
    }
}

impl fmt::Display for BucketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.service.scheme(), self.bucket)?;
        if self.key.is_empty() { Ok(()) } else { write!(f, "/{}", self.key) }
    }
}
