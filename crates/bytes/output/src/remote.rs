//! Addresses of files that are not on this machine.

use std::fmt;
use std::path::Path;

/// The address of a file that is not on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// How the file would be fetched.
    pub scheme: Scheme,
    /// What follows the scheme and its slashes: `bucket/a/model.pth` of `s3://bucket/a/model.pth`.
    pub rest: String,
}

/// The scheme of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scheme {
    /// `http://`
    Http,
    /// `https://`
    Https,
    /// `s3://`: Amazon S3 and its relatives.
    S3,
    /// `gs://`: Google Cloud Storage.
    Gs,
    /// `hf://`: Hugging Face, as `hf://OWNER/MODEL/FILE`.
    Hf,
}

impl Remote {
    /// The address that `path` spells, if it is one. A shell or a program may have joined its slashes: `s3:/bucket`
    /// is an address too.
    pub fn from_path(path: &Path) -> Option<Self> {
        let text = path.to_string_lossy();
        let (scheme, rest) = text.split_once(":/")?;
        let scheme = Scheme::ALL.into_iter().find(|known| known.name() == scheme)?;
        Some(Self { scheme, rest: rest.trim_start_matches('/').to_owned() })
    }
}

/// The address with both of its slashes.
impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.name(), self.rest)
    }
}

impl Scheme {
    const ALL: [Self; 5] = [Self::Http, Self::Https, Self::S3, Self::Gs, Self::Hf];

    /// How an address spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::S3 => "s3",
            Self::Gs => "gs",
            Self::Hf => "hf",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_recognised() {
        let address = |path: &str| Remote::from_path(Path::new(path)).map(|address| address.to_string());
        assert_eq!(address("https://a.b/c.pth?x&y").as_deref(), Some("https://a.b/c.pth?x&y"));
        assert_eq!(address("s3:/bucket/a/c.pth").as_deref(), Some("s3://bucket/a/c.pth"));
        assert_eq!(address("hf://owner/model").as_deref(), Some("hf://owner/model"));
        assert_eq!(address("C:/models/c.pth"), None);
        assert_eq!(address("models/c.pth"), None);
    }
}
