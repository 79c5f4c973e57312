//! Permissions, limits and credentials of remote files.

use std::path::PathBuf;
use std::sync::Arc;
#[cfg(feature = "http")]
use std::sync::atomic::Ordering;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use crate::Traffic;
#[cfg(feature = "http")]
use crate::client_pool::ClientPool;
use crate::traffic::TrafficCounter;

const HUB: &str = "https://huggingface.co";

/// Permissions, limits and credentials of remote files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RemoteOptions {
    /// Allows http addresses, and addresses of private networks.
    pub allow_http: bool,
    /// Time without data after which a connection counts as broken.
    pub timeout: Duration,
    /// Refuses every request.
    pub offline: bool,
    /// Base URL of the Hub.
    pub hub_endpoint: String,
    /// Token that is sent to the Hub, and to no other host.
    pub hub_token: Option<String>,
    /// File with the certificates to trust instead of the built-in ones.
    pub certificates: Option<PathBuf>,
    /// Folder that keeps the ranges that are read, and has those that were read before.
    pub cache: Option<PathBuf>,
    /// Set by the caller to stop all requests.
    pub stop: Arc<AtomicBool>,
    /// Counts of all files that are opened with clones of these options.
    pub(crate) counter: TrafficCounter,
    /// Memory in bytes of the parts of outputs that are being sent. What is left is for ranges that are read ahead.
    pub(crate) upload_memory: Arc<AtomicU64>,
    /// Clients that were created with clones of these options.
    #[cfg(feature = "http")]
    pub(crate) clients: ClientPool,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            allow_http: false,
            timeout: Duration::from_secs(30),
            offline: false,
            hub_endpoint: HUB.to_owned(),
            hub_token: None,
            certificates: None,
            cache: None,
            stop: Arc::default(),
            counter: TrafficCounter::default(),
            upload_memory: Arc::default(),
            #[cfg(feature = "http")]
            clients: ClientPool::default(),
        }
    }
}

impl RemoteOptions {
    /// Returns the options that the environment sets: `HF_TOKEN`, `HF_TOKEN_PATH`, `HF_HOME`, `HF_ENDPOINT`,
    /// `HF_HUB_OFFLINE`, `HF_HUB_DISABLE_IMPLICIT_TOKEN` and `SSL_CERT_FILE`. Proxies are those of `HTTPS_PROXY`,
    /// `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`.
    pub fn from_env() -> Self {
        Self::from_variables(&|name| std::env::var(name).ok())
    }

    fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| {
            variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        let is_on = |name: &str| {
            set(name).is_some_and(|value| {
                matches!(value.to_ascii_uppercase().as_str(), "1" | "ON" | "YES" | "TRUE")
            })
        };
        let explicit = set("HF_TOKEN").or_else(|| set("HUGGING_FACE_HUB_TOKEN"));
        let home = set("HF_HOME").map(PathBuf::from).or_else(|| {
            let cache = set("XDG_CACHE_HOME").map(PathBuf::from);
            let cache = cache.or_else(|| Some(PathBuf::from(set("HOME")?).join(".cache")));
            cache.map(|cache| cache.join("huggingface"))
        });
        let token_file = || {
            let path = set("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| Some(home?.join("token")))?;
            let token = std::fs::read_to_string(path).ok()?.trim().to_owned();
            (!token.is_empty()).then_some(token)
        };
        let is_implicit = !is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN");
        let endpoint = set("HF_ENDPOINT").map(|endpoint| endpoint.trim_end_matches('/').to_owned());
        Self {
            offline: is_on("HF_HUB_OFFLINE"),
            hub_endpoint: endpoint.unwrap_or_else(|| HUB.to_owned()),
            hub_token: is_implicit.then(|| explicit.or_else(token_file)).flatten(),
            certificates: set("SSL_CERT_FILE").map(PathBuf::from),
            ..Self::default()
        }
    }

    /// Shares the connections of `other`, its counts of requests, its memory for ranges and parts, and what stops it.
    pub fn share_with(&mut self, other: &Self) {
        #[cfg(feature = "http")]
        self.clients.clone_from(&other.clients);
        self.counter = other.counter.clone();
        self.stop = Arc::clone(&other.stop);
        self.upload_memory = Arc::clone(&other.upload_memory);
    }

    /// Returns the requests and bytes of all files that were opened with clones of these options.
    pub fn traffic(&self) -> Traffic {
        self.counter.get()
    }

    /// Returns true if the caller has stopped all requests.
    #[cfg(feature = "http")]
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_sets_the_hub() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("token"), "hf_file\n").expect("a file");
        let home = folder.path().display().to_string();
        let options = |variables: &[(&str, &str)]| {
            let find = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            RemoteOptions::from_variables(&find)
        };
        let token = |variables: &[(&str, &str)]| options(variables).hub_token;
        assert_eq!(token(&[("HF_TOKEN", "hf_a"), ("HF_HOME", &home)]).as_deref(), Some("hf_a"));
        assert_eq!(token(&[("HF_HOME", &home)]).as_deref(), Some("hf_file"));
        assert_eq!(token(&[("HF_TOKEN_PATH", &format!("{home}/token"))]).as_deref(), Some("hf_file"));
        assert_eq!(token(&[("HF_HOME", &home), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]), None);
        assert_eq!(token(&[]), None);
        let set = options(&[("HF_ENDPOINT", "https://mirror/"), ("HF_HUB_OFFLINE", "true")]);
        assert_eq!((set.hub_endpoint.as_str(), set.offline), ("https://mirror", true));
        assert!(!options(&[("HF_HUB_OFFLINE", "0")]).offline);
    }
}
