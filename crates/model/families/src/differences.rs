//! Differences of two configurations in what the models compute.

use std::cell::RefCell;

use serde_json::{Map, Value};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::model::parse;

/// Keys that say nothing about what a model computes, besides those that start with `_`.
const IGNORED: &[&str] = &["transformers_version", "dtype", "torch_dtype", "use_cache"];
/// Keys of the rotary embeddings, which versions write in different forms.
const ROPE: &[&str] = &["rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor"];
/// Keys that no class has, and that change tensors.
const OF_NO_CLASS: &[&str] = &["quantization_config"];

/// Returns the keys of a `config.json` and of its parts whose values differ from those of another. A key that one leaves out has the
/// default of its class, and is equal if the class computes it.
///
/// # Errors
/// When one of them is no JSON object, or has no model type that is known.
pub fn different_keys(first: &str, second: &str) -> Result<Vec<String>> {
    let (first, second) = (parse(first)?, parse(second)?);
    let absent = RefCell::new(None);
    let (first, second) = (root(&first, &absent)?, root(&second, &absent)?);
    let mut found = Vec::new();
    if first.model_type != second.model_type {
        return Ok(vec!["model_type".to_owned()]);
    }
    compare(&first, &second, "", &mut found);
    for key in first.part_keys() {
        if let (Some(first), Some(second)) = (first.part(key), second.part(key)) {
            if first.model_type != second.model_type {
                found.push(format!("{key}.model_type"));
            }
            compare(&first, &second, &format!("{key}."), &mut found);
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn root<'a>(map: &'a Map<String, Value>, absent: &'a RefCell<Option<String>>) -> Result<Config<'a>> {
    let model_type = map.get("model_type").and_then(Value::as_str).ok_or(Error::NoModelType)?;
    let unknown =
        || Error::UnknownModelType { model_type: model_type.to_owned(), known: crate::model::known() };
    Config::new(model_type, map, absent).ok_or_else(unknown)
}

fn compare(first: &Config<'_>, second: &Config<'_>, prefix: &str, found: &mut Vec<String>) {
    let names_part = |key: &str| first.part_keys().any(|part| part == key);
    let mut keys: Vec<&str> = first.map().keys().chain(second.map().keys()).map(String::as_str).collect();
    keys.sort_unstable();
    keys.dedup();
    let differs = |key: &&str| {
        let values = [first, second].map(|config| config.value(key));
        match values {
            [Some(first), Some(second)] => !is_same(first, second),
            // The other one is computed, or is of no class.
            [Some(_), None] | [None, Some(_)] => OF_NO_CLASS.contains(key),
            [None, None] => false,
        }
    };
    let is_apart =
        |key: &str| key.starts_with('_') || IGNORED.contains(&key) || ROPE.contains(&key) || names_part(key);
    let compared = keys.into_iter().filter(|key| !is_apart(key));
    found.extend(compared.filter(differs).map(|key| format!("{prefix}{key}")));
    if let (Some(ours), Some(theirs)) = (rope(first), rope(second))
        && (ours.len() != theirs.len()
            || ours.iter().any(|(key, value)| !theirs.get(key).is_some_and(|other| is_same(value, other))))
    {
        found.push(format!("{prefix}rope_parameters"));
    }
}

/// Returns the parameters of the rotary embeddings; `None` if each kind of layer has its own.
fn rope(config: &Config<'_>) -> Option<Map<String, Value>> {
    let given = |key: &str| config.map().get(key).filter(|value| !value.is_null());
    let mut all = given("rope_parameters")
        .or_else(|| given("rope_scaling"))
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    if all.values().any(Value::is_object) {
        return None;
    }
    let old_type = all.remove("type");
    let defaults = [
        ("rope_type", old_type.unwrap_or_else(|| "default".into())),
        (
            "rope_theta",
            given("rope_theta").cloned().or_else(|| config.theta().map(Value::from)).unwrap_or_default(),
        ),
        ("partial_rotary_factor", config.value("partial_rotary_factor").cloned().unwrap_or_default()),
    ];
    for (key, value) in defaults {
        if !all.contains_key(key) {
            all.insert(key.to_owned(), value);
        }
    }
    Some(all)
}

/// Returns true for equal values, whatever the form of their numbers.
fn is_same(first: &Value, second: &Value) -> bool {
    match (first, second) {
        (Value::Number(first), Value::Number(second)) => first.as_f64() == second.as_f64(),
        _ => first == second,
    }
}
