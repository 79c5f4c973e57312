//! Routes requests by method and path.
//!
//! Facts: `http_server.cc` of Triton's server. A wrong method is answered with 405, any other path with 404.

use std::borrow::Cow;

use hyper::Method;
use percent_encoding::percent_decode_str;

use crate::page::PageFile;

/// Stands for a model's name in [`ROUTES`].
pub(crate) const MODEL_PLACEHOLDER: &str = "{model}";

/// Method and path of a route, and what it answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteDescription {
    pub(crate) method: &'static str,
    /// Path, with [`MODEL_PLACEHOLDER`] for the name of a model.
    pub(crate) path: &'static str,
    pub(crate) answer: &'static str,
    /// True if the route works only on a server of a repository.
    pub(crate) needs_repository: bool,
}

/// Descriptions of all routes. The paths of a model also exist below `/versions/{version}`.
pub(crate) const ROUTES: [RouteDescription; 21] = [
    RouteDescription::new("GET", "/", "this list; for browsers, a page to talk to the models"),
    RouteDescription::new("GET", "/v1/models", "the models that generate texts"),
    RouteDescription::new("GET", "/v1/models/{model}", "the model, if it generates texts"),
    RouteDescription::new("POST", "/v1/completions", "continues texts, as OpenAI's clients ask"),
    RouteDescription::new("POST", "/v1/chat/completions", "answers conversations"),
    RouteDescription::new("POST", "/v1/responses", "answers conversations, and keeps nothing"),
    RouteDescription::new("GET", "/v2", "name, version and extensions of the server"),
    RouteDescription::new("GET", "/v2/health/live", "200 while the server runs"),
    RouteDescription::new("GET", "/v2/health/ready", "200 while the server takes requests"),
    RouteDescription::new("GET", "/v2/models/{model}", "inputs and outputs of the model"),
    RouteDescription::new("GET", "/v2/models/{model}/config", "configuration of the model"),
    RouteDescription::new("GET", "/v2/models/{model}/ready", "200 while the model takes requests"),
    RouteDescription::new("GET", "/v2/models/{model}/stats", "counts and times of the model's requests"),
    RouteDescription::new("GET", "/v2/models/stats", "counts and times of all models' requests"),
    RouteDescription::new("POST", "/v2/models/{model}/infer", "inference: tensors in, tensors out"),
    RouteDescription::new("POST", "/v2/models/{model}/generate", "continues a text"),
    RouteDescription::new("POST", "/v2/models/{model}/generate_stream", "continues a text, as a stream"),
    RouteDescription::new("POST", "/v2/repository/index", "the models and their versions"),
    RouteDescription {
        needs_repository: true,
        ..RouteDescription::new(
            "POST",
            "/v2/repository/models/{model}/load",
            "opens the files of the model again",
        )
    },
    RouteDescription {
        needs_repository: true,
        ..RouteDescription::new("POST", "/v2/repository/models/{model}/unload", "stops serving the model")
    },
    RouteDescription::new("GET", "/metrics", "metrics for Prometheus"),
];

impl RouteDescription {
    const fn new(method: &'static str, path: &'static str, answer: &'static str) -> Self {
        Self { method, path, answer, needs_repository: false }
    }
}

/// Target of a request: the server, its repository or a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// List of routes and models, at `/`.
    Overview,
    /// File of the page for browsers, which is at `/`.
    Page(PageFile),
    /// Metadata of the server, at `/v2`.
    Server,
    Live,
    Ready,
    Metrics,
    Statistics,
    /// Index of the model repository.
    Index,
    Load(String),
    Unload(String),
    Model(ModelTarget, ModelEndpoint),
    OpenAi(OpenAiRoute),
}

/// Route of OpenAI's protocol, below `/v1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OpenAiRoute {
    Models,
    Model(String),
    Completions,
    Chat,
    Responses,
}

/// Model named by a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelTarget {
    pub(crate) name: String,
    /// Version number; `None` selects the newest version.
    pub(crate) version: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelEndpoint {
    Metadata,
    Ready,
    Config,
    Statistics,
    Infer,
    Generate,
    GenerateStream,
}

/// Reason for which a request has no route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RouteError {
    NotFound,
    /// The path exists, but only for this method.
    Method(Method),
}

impl Route {
    /// Finds the route of `method` and `path`. The segments of the path are percent-decoded after the split.
    pub(crate) fn find(method: &Method, path: &str) -> Result<Self, RouteError> {
        let route = Self::from_path(path).ok_or(RouteError::NotFound)?;
        let allowed = route.method();
        if *method == allowed { Ok(route) } else { Err(RouteError::Method(allowed)) }
    }

    fn from_path(path: &str) -> Option<Self> {
        let parts: Vec<Cow<'_, str>> = path
            .strip_prefix('/')?
            .split('/')
            .map(|part| percent_decode_str(part).decode_utf8().ok())
            .collect::<Option<_>>()?;
        let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
        Some(match *parts.as_slice() {
            [""] => Self::Overview,
            ["page.js"] => Self::Page(PageFile::Script),
            ["page.css"] => Self::Page(PageFile::Style),
            ["metrics"] => Self::Metrics,
            ["v1", "models"] => Self::OpenAi(OpenAiRoute::Models),
            ["v1", "models", ref name @ ..] if !name.concat().is_empty() => {
                Self::OpenAi(OpenAiRoute::Model(name.join("/")))
            }
            ["v1", "chat", "completions"] => Self::OpenAi(OpenAiRoute::Chat),
            ["v1", "responses"] => Self::OpenAi(OpenAiRoute::Responses),
            ["v1", "completions"] => Self::OpenAi(OpenAiRoute::Completions),
            ["v2"] => Self::Server,
            ["v2", "health", "live"] => Self::Live,
            ["v2", "health", "ready"] => Self::Ready,
            ["v2", "models", "stats"] => Self::Statistics,
            ["v2", "repository", "index"] => Self::Index,
            ["v2", "repository", "models", name, "load"] if !name.is_empty() => Self::Load(name.to_owned()),
            ["v2", "repository", "models", name, "unload"] if !name.is_empty() => {
                Self::Unload(name.to_owned())
            }
            ["v2", "models", name, "versions", version, ref about @ ..] if is_version(version) => {
                Self::model(name, Some(version), about)?
            }
            ["v2", "models", name, ref about @ ..] => Self::model(name, None, about)?,
            _ => return None,
        })
    }

    fn model(name: &str, version: Option<&str>, about: &[&str]) -> Option<Self> {
        let about = match about {
            [] => ModelEndpoint::Metadata,
            ["ready"] => ModelEndpoint::Ready,
            ["config"] => ModelEndpoint::Config,
            ["stats"] => ModelEndpoint::Statistics,
            ["infer"] => ModelEndpoint::Infer,
            ["generate"] => ModelEndpoint::Generate,
            ["generate_stream"] => ModelEndpoint::GenerateStream,
            _ => return None,
        };
        let target = ModelTarget { name: name.to_owned(), version: version.map(str::to_owned) };
        (!name.is_empty()).then_some(Self::Model(target, about))
    }

    /// Returns true for what clients without a key may ask: if the server lives, and the files of the page, which have no data.
    pub(crate) fn is_public(&self) -> bool {
        matches!(self, Self::Live | Self::Ready | Self::Page(_))
    }

    fn method(&self) -> Method {
        match self {
            Self::Index
            | Self::Load(_)
            | Self::Unload(_)
            | Self::Model(
                _,
                ModelEndpoint::Infer | ModelEndpoint::Generate | ModelEndpoint::GenerateStream,
            )
            | Self::OpenAi(OpenAiRoute::Completions | OpenAiRoute::Chat | OpenAiRoute::Responses) => {
                Method::POST
            }
            _ => Method::GET,
        }
    }
}

/// Returns true for the paths whose errors have OpenAI's form.
pub(crate) fn is_openai(path: &str) -> bool {
    path == "/v1" || path.starts_with("/v1/")
}

/// Returns true for a decimal number without leading zeros, so that each version has one path.
fn is_version(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && (text == "0" || !text.starts_with('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str, version: Option<&str>, about: ModelEndpoint) -> Route {
        Route::Model(ModelTarget { name: name.to_owned(), version: version.map(str::to_owned) }, about)
    }

    #[test]
    fn paths() {
        let get = |path: &str| Route::find(&Method::GET, path);
        assert_eq!(get("/"), Ok(Route::Overview));
        assert_eq!(get("/v2"), Ok(Route::Server));
        assert_eq!(get("/v2/health/live"), Ok(Route::Live));
        assert_eq!(get("/v2/health/ready"), Ok(Route::Ready));
        assert_eq!(get("/metrics"), Ok(Route::Metrics));
        assert_eq!(get("/v2/models/stats"), Ok(Route::Statistics));
        assert_eq!(get("/v2/models/m"), Ok(model("m", None, ModelEndpoint::Metadata)));
        assert_eq!(get("/v2/models/m/versions/12"), Ok(model("m", Some("12"), ModelEndpoint::Metadata)));
        assert_eq!(
            get("/v2/models/m/versions/1/stats"),
            Ok(model("m", Some("1"), ModelEndpoint::Statistics))
        );
        assert_eq!(get("/v2/models/m/config"), Ok(model("m", None, ModelEndpoint::Config)));
        assert_eq!(get("/v2/models/versions/ready"), Ok(model("versions", None, ModelEndpoint::Ready)));
        let name = "/v2/models/a%2Fb%20c/ready";
        assert_eq!(get(name), Ok(model("a/b c", None, ModelEndpoint::Ready)), "decoded after it is split");
        for path in [
            "",
            "//",
            "/v2/",
            "/v2/health",
            "/v2/health/",
            "/v2/health/live/",
            "/v2/models",
            "/v2/models/",
            "/v2/models//ready",
            "/v2/models/m/",
            "/v2/models/m/versions",
            "/v2/models/m/versions/",
            "/v2/models/m/versions/x/infer",
            "/v2/models/m/versions/-1",
            "/v2/models/m/versions/01",
            "/v2/models/m/versions/00/ready",
            "/v2/models/m/versions/%301/infer",
            "/v2/models/m/infer/x",
            "/v2/repository",
            "/v2/repository/models/m",
            "/v2/repository/models//load",
            "/v2/repository/models//unload",
            "/v2/repository/r/index",
            "/v2/models/%ff",
            "/metrics/",
            "/V2",
            "v2",
            "*",
        ] {
            assert_eq!(get(path), Err(RouteError::NotFound), "{path}");
        }
    }

    #[test]
    fn each_described_route_exists() {
        let found: Vec<Route> = ROUTES
            .iter()
            .map(|route| {
                let method = Method::from_bytes(route.method.as_bytes()).expect("a method");
                let path = route.path.replace(MODEL_PLACEHOLDER, "m");
                Route::find(&method, &path).unwrap_or_else(|error| panic!("{path}: {error:?}"))
            })
            .collect();
        for (index, route) in found.iter().enumerate() {
            assert!(!found[..index].contains(route), "{route:?} is described twice");
        }
        assert!(found.contains(&Route::Metrics) && found.contains(&Route::Index));
    }

    #[test]
    fn methods() {
        for path in ["/v2/models/m/infer", "/v2/models/m/versions/1/infer", "/v2/repository/index"] {
            assert_eq!(Route::find(&Method::GET, path), Err(RouteError::Method(Method::POST)), "{path}");
            assert!(Route::find(&Method::POST, path).is_ok(), "{path}");
        }
        let load = Route::find(&Method::POST, "/v2/repository/models/m/load");
        assert_eq!(load, Ok(Route::Load("m".to_owned())));
        let unload = Route::find(&Method::POST, "/v2/repository/models/m/unload");
        assert_eq!(unload, Ok(Route::Unload("m".to_owned())));
        for path in ["/v2", "/v2/health/live", "/v2/models/m", "/metrics", "/v2/models/stats"] {
            for method in [Method::POST, Method::PUT, Method::HEAD, Method::OPTIONS] {
                assert_eq!(
                    Route::find(&method, path),
                    Err(RouteError::Method(Method::GET)),
                    "{method} {path}"
                );
            }
        }
    }
}
