//! What the document of an adapter says about it: the base, the method, and its sizes.
//!
//! Facts: `PeftConfig` and `LoraConfig` of peft 0.21, and `alpha` of its other methods.

use byte_source::Location;
use serde::Serialize;
use serde_json::Value as Json;

use super::merge::ADAPTER_FILES;
use crate::files::CheckpointSources;
use crate::{Error, Problem, Result};

/// Settings of an adapter of any method, as `adapter_config.json` has them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct AdapterOverview {
    /// Model that the adapter was trained on.
    pub base: Option<String>,
    /// Method, such as `LORA`.
    pub method: Option<String>,
    /// Rank of all modules that no pattern names.
    pub rank: Option<u64>,
    /// Numerator of the scale, for all modules that no pattern names.
    pub alpha: Option<f64>,
    /// Modules and parameters that the adapter changes, in ascending order, or a regular expression.
    pub targets: Vec<String>,
}

impl AdapterOverview {
    /// Reads the document next to the tensors of an adapter; `None` if the files are not those that peft saves, or there is
    /// no document that is a JSON object.
    ///
    /// # Errors
    /// When the document cannot be read.
    pub fn read(sources: &CheckpointSources) -> Result<Option<Self>> {
        let is_adapter = |file: &std::path::PathBuf| ADAPTER_FILES.iter().any(|name| file.ends_with(name));
        if !sources.files.iter().any(is_adapter) {
            return Ok(None);
        }
        Ok(sources.documents.adapter()?.and_then(Self::from_json))
    }

    fn from_json(text: &str) -> Option<Self> {
        let document: Json = serde_json::from_str(text).ok()?;
        let document = document.as_object()?;
        let text = |name: &str| Some(document.get(name)?.as_str()?.to_owned());
        let names = |name: &str| match document.get(name) {
            Some(Json::String(pattern)) => vec![pattern.clone()],
            Some(Json::Array(names)) => {
                names.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
            }
            _ => Vec::new(),
        };
        let mut targets = names("target_modules");
        targets.extend(names("target_parameters"));
        targets.sort();
        let alpha = document.get("lora_alpha").or_else(|| document.get("alpha"));
        Some(Self {
            base: text("base_model_name_or_path"),
            method: text("peft_type"),
            rank: document.get("r").and_then(Json::as_u64),
            alpha: alpha.and_then(Json::as_f64),
            targets,
        })
    }
}

/// Refuses an adapter as the model of a conversion.
///
/// # Errors
/// When the tensors are those of an adapter.
pub fn refuse_adapter(sources: &CheckpointSources, input: Option<&Location>) -> Result<()> {
    let Some(overview) = AdapterOverview::read(sources)? else { return Ok(()) };
    let path = input.map_or_else(|| sources.root(), Location::path);
    Err(Error::from(Problem::AdapterAlone { overview: Box::new(overview) }).in_file(path))
}
