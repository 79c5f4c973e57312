//! The index of a model repository: the answer of `POST /v2/repository/index`, a JSON array of entries.
//!
//! Facts: "Model Repository Extension" of Triton's protocol.

use serde::Serialize;

/// A version of a model in the repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IndexEntry {
    /// The model.
    pub name: String,
    /// The version; absent for a model of which no version was ever loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether it answers requests; absent if it was never loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Why it is in that state; absent if there is nothing to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The state of a version of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum State {
    /// It answers requests.
    Ready,
    /// It does not answer: it was unloaded, or could not be loaded.
    Unavailable,
    /// It is being loaded.
    Loading,
    /// It is being unloaded.
    Unloading,
}
