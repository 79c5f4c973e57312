//! Addresses of remote files, such as `s3://bucket/model.pth`.

use std::fmt;
use std::path::Path;

/// Address of a remote file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    pub scheme: UrlScheme,
    /// Rest after the scheme and its slashes: `bucket/a/model.pth` of `s3://bucket/a/model.pth`.
    pub rest: String,
}

/// URL scheme of a remote address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UrlScheme {
    Http,
    Https,
    /// `s3://`: Amazon S3 and compatible stores.
    S3,
    /// `gs://`: Google Cloud Storage.
    Gs,
    /// `az://`: Azure Blob Storage.
    Az,
    /// `hf://`: Hugging Face, as `hf://OWNER/MODEL/FILE`.
    Hf,
}

impl RemoteAddress {
    /// Parses `path` as an address; `None` if it is a local path. A shell or a program may have merged the slashes, so
    /// `s3:/bucket` is an address too.
    pub fn from_path(path: &Path) -> Option<Self> {
        let text = path.to_string_lossy();
        let (scheme, rest) = text.split_once(":/")?;
        let scheme = UrlScheme::ALL.into_iter().find(|known| known.name() == scheme)?;
        Some(Self { scheme, rest: rest.trim_start_matches('/').to_owned() })
    }
}

/// Formats the address with both slashes, `SCHEME://REST`.
impl fmt::Display for RemoteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.name(), self.rest)
    }
}

impl UrlScheme {
    const ALL: [Self; 6] = [Self::Http, Self::Https, Self::S3, Self::Gs, Self::Az, Self::Hf];

    /// Returns the scheme as an address spells it, such as `https`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::S3 => "s3",
            Self::Gs => "gs",
            Self::Az => "az",
            Self::Hf => "hf",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_recognised() {
        let address =
            |path: &str| RemoteAddress::from_path(Path::new(path)).map(|address| address.to_string());
        assert_eq!(address("https://a.b/c.pth?x&y").as_deref(), Some("https://a.b/c.pth?x&y"));
        assert_eq!(address("s3:/bucket/a/c.pth").as_deref(), Some("s3://bucket/a/c.pth"));
        assert_eq!(address("hf://owner/model").as_deref(), Some("hf://owner/model"));
        assert_eq!(address("C:/models/c.pth"), None);
        assert_eq!(address("models/c.pth"), None);
    }
}
