//! `GET /v1/models` and `GET /v1/models/{model}`.

use serde::Serialize;

use super::generation::find_model;
use crate::answer::{RouteResult, json};
use crate::state::ServerState;

#[derive(Debug, Serialize)]
struct ModelList {
    object: &'static str,
    data: Vec<ModelObject>,
}

#[derive(Debug, Serialize)]
struct ModelObject {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
}

impl ModelObject {
    fn new(state: &ServerState, name: &str) -> Self {
        Self { id: name.to_owned(), object: "model", created: state.started, owned_by: "torch2carton" }
    }
}

/// Lists the models that generate texts.
pub(super) fn list(state: &ServerState) -> RouteResult {
    let models = state.registry.ready_models();
    let mut names: Vec<&str> =
        models.iter().filter(|served| served.texts.is_some()).map(|served| served.name.as_str()).collect();
    names.dedup();
    let data = names.into_iter().map(|name| ModelObject::new(state, name)).collect();
    json(&ModelList { object: "list", data })
}

/// Describes a model that generates texts.
pub(super) fn show(state: &ServerState, name: &str) -> RouteResult {
    json(&ModelObject::new(state, &find_model(state, name)?.name))
}
