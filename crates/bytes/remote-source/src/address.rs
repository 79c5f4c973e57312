//! Addresses of remote files.

use std::fmt;

use url::Url;

use crate::{BucketAddress, BucketService, Error, Result};

const FORMS: &str =
    "https://HOST/PATH, hf://OWNER/NAME/PATH, s3://BUCKET/NAME, gs://BUCKET/NAME or az://CONTAINER/NAME";

/// Address of a remote file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// `https://` or `http://`.
    Http(Url),
    /// `hf://`: a file on the Hugging Face Hub.
    Hub(HubAddress),
    /// `s3://`, `gs://` or `az://`: an object in a bucket, or a prefix of several.
    Bucket(BucketAddress),
}

/// Address of a file in a repository of the Hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubAddress {
    pub kind: RepositoryKind,
    /// Owner and name, such as `openai-community/gpt2`.
    pub repository: String,
    /// Branch, tag or commit; `None` is the branch `main`.
    pub revision: Option<String>,
    /// Path of the file in the repository; empty for the repository itself.
    pub path: String,
}

/// Kind of a repository of the Hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepositoryKind {
    Model,
    Dataset,
    Space,
}

impl RepositoryKind {
    const ALL: [Self; 3] = [Self::Model, Self::Dataset, Self::Space];

    /// Returns the plural that addresses and the API use, such as `models`.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Model => "models",
            Self::Dataset => "datasets",
            Self::Space => "spaces",
        }
    }
}

impl Address {
    /// Parses an address. A shell or a path type may have merged the slashes, so `hf:/a/b` is an address too.
    ///
    /// # Errors
    /// When the scheme is not one of this crate, or the rest does not have its form.
    pub fn parse(text: &str) -> Result<Self> {
        let form = |expected| Error::Address { address: redact(text), expected };
        let Some((scheme, rest)) = text.split_once(":/") else {
            return Err(form(FORMS));
        };
        let rest = rest.trim_start_matches('/');
        match scheme {
            "https" | "http" => {
                let url = Url::parse(&format!("{scheme}://{rest}")).map_err(|_| form("https://HOST/PATH"))?;
                Ok(Self::Http(url))
            }
            "hf" => HubAddress::parse(rest)
                .map(Self::Hub)
                .ok_or_else(|| form("hf://OWNER/NAME or hf://OWNER/NAME/PATH")),
            scheme => {
                let service = BucketService::from_scheme(scheme).ok_or_else(|| form(FORMS))?;
                BucketAddress::parse(service, rest)
                    .map(Self::Bucket)
                    .ok_or_else(|| form("BUCKET/NAME after the scheme"))
            }
        }
    }

    /// Returns the name of the file, the last part of its path.
    pub fn file_name(&self) -> &str {
        let path = match self {
            Self::Http(url) => url.path(),
            Self::Hub(address) => &address.path,
            Self::Bucket(address) => &address.key,
        };
        path.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the folder of the file, without a query.
    pub(crate) fn folder(&self) -> Self {
        let parent =
            |path: &str| path.rsplit_once('/').map_or(String::new(), |(parent, _)| parent.to_owned());
        match self {
            Self::Http(url) => {
                let mut url = url.clone();
                url.set_query(None);
                url.set_fragment(None);
                if let Ok(mut parts) = url.path_segments_mut() {
                    parts.pop();
                }
                Self::Http(url)
            }
            Self::Hub(address) => Self::Hub(HubAddress { path: parent(&address.path), ..address.clone() }),
            Self::Bucket(address) => {
                Self::Bucket(BucketAddress { key: parent(&address.key), ..address.clone() })
            }
        }
    }
}

impl HubAddress {
    fn parse(rest: &str) -> Option<Self> {
        let kind =
            |kind: &RepositoryKind| Some((*kind, rest.strip_prefix(kind.plural())?.strip_prefix('/')?));
        let (kind, rest) = RepositoryKind::ALL.iter().find_map(kind).unwrap_or((RepositoryKind::Model, rest));
        let (owner, rest) = rest.split_once('/')?;
        let (name, rest) = rest.split_at(rest.find(['/', '@']).unwrap_or(rest.len()));
        if owner.is_empty() || name.is_empty() {
            return None;
        }
        let (revision, path) = match rest.strip_prefix('@') {
            Some(rest) => {
                let (revision, path) = split_revision(rest);
                (Some(revision.replace("%2F", "/")).filter(|revision| !revision.is_empty())?, path)
            }
            None => (String::new(), rest),
        };
        Some(Self {
            kind,
            repository: format!("{owner}/{name}"),
            revision: Some(revision).filter(|revision| !revision.is_empty()),
            path: path.trim_matches('/').to_owned(),
        })
    }

    /// Returns the revision, by default `main`.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or("main")
    }
}

/// Splits `REVISION/PATH`. Of the revisions with slashes, only `refs/pr/N` and `refs/convert/NAME` need no `%2F`.
fn split_revision(text: &str) -> (&str, &str) {
    let parts: Vec<&str> = text.splitn(4, '/').collect();
    let len = match parts.as_slice() {
        ["refs", "pr" | "convert", third, ..] => {
            let second = parts.get(1).map_or(0, |part| part.len());
            "refs//".len().saturating_add(second).saturating_add(third.len())
        }
        [first, ..] => first.len(),
        [] => 0,
    };
    text.split_at_checked(len).unwrap_or((text, ""))
}

/// Formats the address without user, password and query.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(url) => f.write_str(&shown_url(url)),
            Self::Hub(address) => address.fmt(f),
            Self::Bucket(address) => address.fmt(f),
        }
    }
}

impl fmt::Display for HubAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            RepositoryKind::Model => String::new(),
            kind => format!("{}/", kind.plural()),
        };
        write!(f, "hf://{kind}{}", self.repository)?;
        if let Some(revision) = &self.revision {
            write!(f, "@{revision}")?;
        }
        if self.path.is_empty() { Ok(()) } else { write!(f, "/{}", self.path) }
    }
}

/// Returns a URL without user, password, query and fragment, which may hold secrets.
pub(crate) fn shown_url(url: &Url) -> String {
    let mut shown = url.clone();
    shown.set_query(None);
    shown.set_fragment(None);
    // These fail for URLs without a host, which have no user either.
    let _ = shown.set_username("").and_then(|()| shown.set_password(None));
    shown.into()
}

/// Returns a text that is not a URL without what could be a secret.
pub(crate) fn redact(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    match (text.split_once(":/"), text.rsplit_once('@')) {
        (Some((scheme @ ("http" | "https"), _)), Some((_, rest))) => format!("{scheme}://{rest}"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Option<String> {
        Address::parse(text).ok().map(|address| address.to_string())
    }

    #[test]
    fn a_folder_has_no_query() {
        let folder = |text: &str| Address::parse(text).expect("an address").folder().to_string();
        assert_eq!(folder("https://a.b/c/d.pth?x=1"), "https://a.b/c");
        assert_eq!(folder("hf://a/b@refs/pr/1/d.pth"), "hf://a/b@refs/pr/1");
        assert_eq!(folder("s3://bucket/c/d/e.pth"), "s3://bucket/c/d");
        assert_eq!(folder("gs://bucket/e.pth"), "gs://bucket");
    }

    #[test]
    fn addresses_are_printed_without_secrets() {
        assert_eq!(shown("https://u:secret@a.b/c.pth?sig=secret#x").as_deref(), Some("https://a.b/c.pth"));
        assert_eq!(shown("https:/a.b/c.pth").as_deref(), Some("https://a.b/c.pth"));
        let error = Address::parse("https://u:secret@[/c?sig=secret").expect_err("not a URL");
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(shown("ftp://host/c").is_none() && shown("models/c.pth").is_none());
    }

    #[test]
    fn bucket_addresses_have_a_bucket_and_a_name() {
        assert_eq!(shown("s3:/bucket/a/c.pth").as_deref(), Some("s3://bucket/a/c.pth"));
        assert_eq!(shown("gs://bucket/a/").as_deref(), Some("gs://bucket/a"));
        assert_eq!(shown("az://bucket").as_deref(), Some("az://bucket"));
        assert!(shown("s3://").is_none() && shown("s3://key:secret@bucket/c").is_none());
    }

    #[test]
    fn hub_addresses_have_kinds_and_revisions() {
        let hub = |text: &str| match Address::parse(text) {
            Ok(Address::Hub(address)) => Some((
                address.kind,
                address.repository.clone(),
                address.revision().to_owned(),
                address.path.clone(),
            )),
            _ => None,
        };
        let model = |revision: &str, path: &str| {
            Some((RepositoryKind::Model, "a/b".to_owned(), revision.to_owned(), path.to_owned()))
        };
        assert_eq!(hub("hf://a/b"), model("main", ""));
        assert_eq!(hub("hf://models/a/b/x/y.bin"), model("main", "x/y.bin"));
        assert_eq!(hub("hf://a/b@v1/x/y.bin"), model("v1", "x/y.bin"));
        assert_eq!(hub("hf://a/b@refs/pr/1/y.bin"), model("refs/pr/1", "y.bin"));
        assert_eq!(hub("hf://a/b@refs/pr/1"), model("refs/pr/1", ""));
        assert_eq!(hub("hf://a/b@feature%2Fx/y.bin"), model("feature/x", "y.bin"));
        assert_eq!(
            hub("hf:/datasets/a/b/c.pt"),
            Some((RepositoryKind::Dataset, "a/b".into(), "main".into(), "c.pt".into()))
        );
        for text in ["hf://a", "hf://", "hf://a/b@", "hf:///b"] {
            assert_eq!(hub(text), None, "{text}");
        }
        for text in ["hf://a/b@refs/pr/1/y.bin", "hf://datasets/a/b/c.pt", "hf://a/b"] {
            assert_eq!(shown(text).as_deref(), Some(text));
        }
        assert_eq!(Address::parse("hf://a/b/c/d.pt").expect("an address").file_name(), "d.pt");
    }
}
