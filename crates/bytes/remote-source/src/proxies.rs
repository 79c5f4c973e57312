//! Proxies that the environment names.
//!
//! Facts: the variables of curl(1), and its rules for `NO_PROXY`.

use ureq::Proxy;
use url::Url;

/// Proxies for each scheme, and the hosts that need none.
#[derive(Debug, Default)]
pub(crate) struct Proxies {
    https: Option<Proxy>,
    http: Option<Proxy>,
    /// Hosts, domains without a dot at the start, and `*`, in lower case.
    exceptions: Vec<String>,
}

impl Proxies {
    /// Returns the proxies of `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, which may be in lower case.
    pub(crate) fn from_env() -> Self {
        Self::from_variables(&|name| std::env::var(name).ok())
    }

    fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| {
            let value = variable(name).or_else(|| variable(&name.to_ascii_lowercase()));
            value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        let proxy = |name: &str| {
            let value = set(name).or_else(|| set("ALL_PROXY"))?;
            Proxy::new(&value).ok()
        };
        let exceptions = set("NO_PROXY").unwrap_or_default().to_ascii_lowercase();
        let exceptions = exceptions.split([',', ' ']).map(|it| {
            let it = it.trim_start_matches("*.").trim_start_matches('.');
            it.trim_matches(['[', ']']).to_owned()
        });
        Self {
            https: proxy("HTTPS_PROXY"),
            http: proxy("HTTP_PROXY"),
            exceptions: exceptions.filter(|it| !it.is_empty()).collect(),
        }
    }

    /// Returns the proxy for a URL; `None` if the request goes to the host itself.
    pub(crate) fn for_url(&self, url: &Url) -> Option<Proxy> {
        let proxy = if url.scheme() == "https" { &self.https } else { &self.http };
        let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
        let host = host.trim_matches(['[', ']']);
        let port = url.port_or_known_default().unwrap_or_default();
        let is_exception = |exception: &String| {
            let named = exception.strip_suffix(&format!(":{port}")).unwrap_or(exception);
            let is_below = host.strip_suffix(named).is_some_and(|rest| rest.ends_with('.'));
            named == "*" || host == named || is_below
        };
        proxy.clone().filter(|_| !self.exceptions.iter().any(is_exception))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_has_its_proxy_and_some_hosts_have_none() {
        let proxies = |variables: &'static [(&'static str, &'static str)]| {
            Proxies::from_variables(&|name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        let host = |proxies: &Proxies, url: &str| {
            proxies.for_url(&Url::parse(url).expect("a URL")).map(|proxy| proxy.host().to_owned())
        };
        let both = proxies(&[
            ("HTTPS_PROXY", "http://user:secret@a:3128"),
            ("http_proxy", "b:1"),
            ("NO_PROXY", "x.org, .y.org,10.0.0.1:80,[::1]"),
        ]);
        assert_eq!(host(&both, "https://example.org/").as_deref(), Some("a"));
        assert_eq!(host(&both, "http://example.org/").as_deref(), Some("b"));
        for url in [
            "https://x.org/",
            "https://sub.X.org:99/",
            "https://y.org/",
            "http://10.0.0.1/",
            "https://[::1]/",
        ] {
            assert_eq!(host(&both, url), None, "{url}");
        }
        for url in ["https://xx.org/", "https://10.0.0.1/"] {
            assert_eq!(host(&both, url).as_deref(), Some("a"), "{url}");
        }
        let one = proxies(&[("https_proxy", "http://a:1"), ("NO_PROXY", "")]);
        assert_eq!(host(&one, "http://example.org/"), None);
        let all = proxies(&[("ALL_PROXY", "http://c:1"), ("HTTPS_PROXY", "http://a:1")]);
        assert_eq!(host(&all, "http://example.org/").as_deref(), Some("c"));
        assert_eq!(host(&all, "https://example.org/").as_deref(), Some("a"));
        assert_eq!(
            host(&proxies(&[("ALL_PROXY", "http://c:1"), ("no_proxy", "*")]), "http://example.org/"),
            None
        );
    }
}
