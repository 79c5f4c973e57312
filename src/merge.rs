//! `--config FILE.toml`: the fields of a file over those of a carton.toml that was made.
//!
//! Tables are merged, `[[input]]` and `[[output]]` by name, tests and examples are added, and any other
//! field replaces the one that is there.

use std::path::Path;

use anyhow::{Context, Result, bail};
use carton_format::{Config, Place};
use toml::{Table, Value};

use crate::repack::refused;

/// The most bytes of a configuration.
const LIMIT: u64 = 16 << 20;
/// Arrays of tables whose entries go by their names.
const NAMED: &[&str] = &["input", "output"];
/// Arrays of tables that grow.
const GROWING: &[&str] = &["self_test", "example"];

/// The fields of the file at `path` over those of `config`.
pub(crate) fn merged(config: &Config, path: &Path) -> Result<Config> {
    let shown = || path.display().to_string();
    let len = path.metadata().with_context(shown)?.len();
    if len > LIMIT {
        bail!("{}: {len} bytes are more than a configuration has", shown());
    }
    let text = std::fs::read_to_string(path).with_context(shown)?;
    let over: Table = match toml::from_str(&text) {
        Ok(over) => over,
        Err(error) => {
            let place = error.span().map_or(String::new(), |span| {
                let Place { line, column } = Place::of(&text, span.start);
                format!(":{line}:{column}")
            });
            bail!("{}{place}: {}", shown(), error.message());
        }
    };
    let mut base: Table = toml::from_str(&config.to_toml()?)?;
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Array(ports)), Value::Array(over)) if NAMED.contains(&key.as_str()) => {
                for port in over {
                    by_name(ports, port);
                }
            }
            (Some(Value::Array(there)), Value::Array(over)) if GROWING.contains(&key.as_str()) => {
                there.extend(over);
            }
            (Some(Value::Table(there)), Value::Table(over)) => merge(there, over),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
    match Config::parse(&toml::to_string(&base)?) {
        Ok(parsed) => Ok(parsed.document),
        Err(carton_format::Error::Document(problems)) => Err(refused(path, &problems)),
        Err(error) => Err(error).with_context(shown),
    }
}

/// `[runner]` and `[runner.opts]`: two levels are all that the format has.
fn merge(there: &mut Table, over: Table) {
    for (key, value) in over {
        match (there.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(over)) => inner.extend(over),
            (_, value) => {
                there.insert(key, value);
            }
        }
    }
}

fn by_name(ports: &mut Vec<Value>, over: Value) {
    let name = over.get("name").cloned();
    let same = ports.iter_mut().find(|port| name.is_some() && port.get("name").cloned() == name);
    match (same, over) {
        (Some(Value::Table(port)), Value::Table(over)) => port.extend(over),
        (_, over) => ports.push(over),
    }
}
