//! Answers requests for `/` and for paths that do not exist: what the server has, and how to use it.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use crate::route::{MODEL_PLACEHOLDER, ROUTES};
use crate::served_model::ServedModel;
use crate::state::ServerState;

/// Largest number of characters of a path that an error repeats.
const PATH_SHOWN_MAX: usize = 200;

/// Body of the answer to `GET /`.
#[derive(Debug, Serialize)]
pub(crate) struct ServerOverview {
    name: String,
    version: String,
    protocol: &'static str,
    /// Models that answer requests.
    models: Vec<ModelRow>,
    routes: Vec<RouteRow>,
}

#[derive(Debug, Serialize)]
struct ModelRow {
    name: String,
    version: String,
}

#[derive(Debug, Serialize)]
struct RouteRow {
    method: &'static str,
    path: &'static str,
    answer: &'static str,
}

impl ServerOverview {
    pub(crate) fn new(state: &ServerState) -> Self {
        let has_repository = state.registry.has_repository();
        let routes = ROUTES.iter().filter(|route| has_repository || !route.needs_repository);
        let model = |served: &Arc<ServedModel>| ModelRow {
            name: served.name.clone(),
            version: served.version.to_string(),
        };
        Self {
            name: state.metadata.name.clone(),
            version: state.metadata.version.clone(),
            protocol: "KServe v2 (Open Inference Protocol), and OpenAI's",
            models: state.registry.ready_models().iter().map(model).collect(),
            routes: routes
                .map(|route| RouteRow { method: route.method, path: route.path, answer: route.answer })
                .collect(),
        }
    }
}

/// Returns the error for a path without a route: what the server has instead.
pub(crate) fn not_found_text(state: &ServerState, path: &str) -> String {
    let shown: String = path.chars().take(PATH_SHOWN_MAX).collect();
    let dots = if shown.len() < path.len() { "…" } else { "" };
    let names: BTreeSet<String> =
        state.registry.ready_models().iter().map(|served| served.name.clone()).collect();
    let model = match names.first() {
        Some(name) if names.len() == 1 => name.escape_debug().to_string(),
        _ => MODEL_PLACEHOLDER.to_owned(),
    };
    format!(
        "there is nothing at `{}{dots}`: this server speaks KServe v2, where POST /v2/models/{model}/infer takes tensors and \
         returns tensors, and OpenAI's protocol, where POST /v1/completions continues texts. GET / lists the routes and the models",
        shown.escape_debug()
    )
}
