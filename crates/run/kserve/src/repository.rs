//! Index of a model repository: the response to `POST /v2/repository/index`, a JSON array of entries.
//!
//! Facts: "Model Repository Extension" of Triton's protocol.

use serde::Serialize;

/// Index entry for a model version in the repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IndexEntry {
    /// Name of the model.
    pub name: String,
    /// Version of the model; absent if no version was ever loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Load state of the version; absent if it was never loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<VersionState>,
    /// Reason for the state, such as `not loaded`; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Load state of a model version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum VersionState {
    /// Loaded and serving requests.
    Ready,
    /// Unloaded, or failed to load.
    Unavailable,
    Loading,
    Unloading,
}
