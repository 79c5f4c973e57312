//! Keys about a model as a whole: how to sample from it, its name, its license, what it was made from.
//!
//! Facts: `Metadata` in `metadata.py` of `gguf` 0.19.0. Names come from the card of the model, else from `_name_or_path` in its
//! config.json, else from the name of its folder.

use byte_source::Result;
use gguf_format::GgufValue;
use serde_json::{Map, Value};

use crate::keys::Keys;
use crate::model_id::{ModelId, title};
use crate::parameters::Parameters;

/// Facts about a model besides its tensors.
pub(crate) struct About<'a> {
    pub(crate) card: &'a Map<String, Value>,
    pub(crate) config: &'a Map<String, Value>,
    pub(crate) generation: Option<&'a Map<String, Value>>,
    /// Name of the folder.
    pub(crate) folder: &'a str,
    pub(crate) parameters: Parameters,
}

/// Settings of sampling: their keys, and what `generation_config.json` calls them, the usual name last.
pub(crate) const SAMPLING: &[(&str, &[&str])] = &[
    ("sequence", &["sequence"]),
    ("top_k", &["top_k"]),
    ("top_p", &["top_p"]),
    ("min_p", &["min_p"]),
    ("xtc_probability", &["xtc_probability"]),
    ("xtc_threshold", &["xtc_threshold"]),
    ("temp", &["temperature"]),
    ("penalty_last_n", &["penalty_last_n"]),
    ("penalty_repeat", &["penalty_repeat", "repetition_penalty"]),
    ("mirostat", &["mirostat"]),
    ("mirostat_tau", &["mirostat_tau"]),
    ("mirostat_eta", &["mirostat_eta"]),
];
/// Of these keys, the values are whole numbers.
const WHOLE: &[&str] = &["top_k", "penalty_last_n", "mirostat"];

/// Sets the keys in their order.
///
/// # Errors
/// When a value of `generation_config.json` is not a number.
pub(crate) fn set_keys(keys: &mut Keys, about: &About<'_>) -> Result<()> {
    keys.text("general.type", "model");
    sampling(keys, about.generation)?;
    let ids = [
        about.config.get("_name_or_path").and_then(Value::as_str).filter(|id| id.matches('/').count() <= 1),
        Some(about.folder),
    ];
    let ids: Vec<ModelId> = ids.into_iter().flatten().map(|id| ModelId::new(id, about.parameters)).collect();
    let find = |names: &[&str], part: fn(&ModelId) -> Option<String>| {
        named(about.card, names).or_else(|| ids.iter().find_map(part))
    };
    let name = find(&["name", "model_name"], |id| id.name.as_deref().map(title));
    keys.text("general.name", &name.unwrap_or_else(|| about.folder.to_owned()));
    let rows: [(&str, Option<String>); 7] = [
        ("author", named(about.card, &["author", "model_author", "model_creator"])),
        ("version", find(&["version", "model_version"], |id| id.version.clone())),
        (
            "organization",
            find(&["organization", "model_organization"], |id| id.organization.as_deref().map(title)),
        ),
        ("finetune", find(&["finetune", "model_finetune"], |id| id.finetune.clone())),
        ("basename", find(&["basename", "model_basename", "model_type"], |id| id.basename.clone())),
        ("description", named(about.card, &["description", "model_description"])),
        (
            "size_label",
            find(&["size_label", "model_size_label"], |id| id.size_label.clone())
                .or_else(|| (about.parameters.total > 0).then(|| about.parameters.label())),
        ),
    ];
    for (key, text) in rows {
        keys.text_if(&format!("general.{key}"), text.as_deref());
    }
    from_card(keys, about);
    Ok(())
}

fn named(card: &Map<String, Value>, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| Some(card.get(*name)?.as_str()?.to_owned()))
}

fn sampling(keys: &mut Keys, generation: Option<&Map<String, Value>>) -> Result<()> {
    let Some(generation) = generation else { return Ok(()) };
    for (key, names) in SAMPLING {
        let found = names.iter().find_map(|name| Some((*name, generation.get(*name)?)));
        let Some((name, value)) = found.filter(|(_, value)| !value.is_null()) else { continue };
        let key = format!("general.sampling.{key}");
        match value {
            Value::String(text) => keys.text(&key, text),
            _ if WHOLE.contains(&name) => {
                let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
                if let Some(number) = number {
                    keys.set(&key, GgufValue::Int32(number));
                }
            }
            _ => keys.float_of(&key, (name, value))?,
        }
    }
    Ok(())
}

/// Returns a text, or the texts of a list.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(list) => list.iter().filter_map(|it| it.as_str().map(str::to_owned)).collect(),
        _ => Vec::new(),
    }
}

/// Sets the keys that only a card has.
fn from_card(keys: &mut Keys, about: &About<'_>) {
    let card = about.card;
    if let Some(license) = card.get("license").map(texts).filter(|texts| !texts.is_empty()) {
        keys.text("general.license", &license.join(","));
    }
    for (key, names) in [
        ("general.license.name", ["license_name", "license_name"]),
        ("general.license.link", ["license_link", "license_link"]),
        ("general.source.url", ["url", "model_url"]),
        ("general.source.doi", ["doi", "model_doi"]),
        ("general.source.uuid", ["uuid", "model_uuid"]),
        ("general.source.repo_url", ["repo_url", "model_repo_url"]),
    ] {
        keys.text_if(key, named(card, &names).as_deref());
    }
    sources(keys, about, "base_model", &["base_model", "base_models", "base_model_sources"]);
    sources(keys, about, "dataset", &["datasets", "dataset", "dataset_sources"]);
    for (key, names) in
        [("general.tags", ["tags", "pipeline_tag"]), ("general.languages", ["languages", "language"])]
    {
        let all: Vec<String> = names.iter().filter_map(|name| card.get(*name)).flat_map(texts).collect();
        keys.texts(key, all);
    }
}

/// Sets the keys of models or data sets that the model was made from.
fn sources(keys: &mut Keys, about: &About<'_>, kind: &str, names: &[&str]) {
    let Some(value) = names.iter().find_map(|name| about.card.get(*name)) else { return };
    let ids = texts(value);
    keys.number(&format!("general.{kind}.count"), u32::try_from(ids.len()).unwrap_or(u32::MAX));
    for (number, id) in ids.iter().enumerate() {
        let is_url = ["http://", "https://", "ssh://"].iter().any(|start| id.starts_with(start));
        let on_hub = id.split_once("://huggingface.co/").map(|(_, path)| path);
        let path = on_hub.filter(|path| path.matches('/').count() == 1 && !path.ends_with('/'));
        let split =
            if is_url { path } else { Some(id.as_str()) }.map(|id| ModelId::new(id, about.parameters));
        let split = split.unwrap_or_default();
        let url = match (&split.organization, &split.name) {
            _ if is_url => Some(id.clone()),
            (Some(organization), Some(name)) => Some(format!("https://huggingface.co/{organization}/{name}")),
            _ => None,
        };
        let rows = [
            ("name", split.name.as_deref().map(title)),
            ("version", split.version),
            ("organization", split.organization.as_deref().map(title)),
            ("repo_url", url),
        ];
        for (key, text) in rows {
            keys.text_if(&format!("general.{kind}.{number}.{key}"), text.as_deref());
        }
    }
}
