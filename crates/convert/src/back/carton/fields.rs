//! Merges the fields of a TOML file into a generated carton.toml.
//!
//! Tables are merged, entries of `[[input]]` and `[[output]]` are merged by name, tests and examples are appended, and any
//! other field replaces the generated one.

use std::path::Path;

use carton_format::{
    Config, DocumentProblem, DocumentProblems, Problem, TOML_MAX, TensorIndex, TextPosition, find_position,
};
use toml::{Table, Value};

use crate::Result;
use crate::error::at;

/// Arrays of tables whose entries are merged by name.
const MERGED_BY_NAME: &[&str] = &["input", "output"];
/// Arrays of tables to which entries are appended.
const APPENDED: &[&str] = &["self_test", "example"];

/// Merges the fields of the file at `path` into `config`. `has` returns true for the paths of files in the carton.
pub(crate) fn merge_fields_file(config: &Config, path: &Path, has: &dyn Fn(&str) -> bool) -> Result<Config> {
    let text = open::files::read_document(&path.into(), TOML_MAX)?;
    let wrong = |place: String, message: &str| crate::Problem::Toml {
        path: path.to_owned(),
        place,
        message: message.to_owned(),
    };
    let over: Table = toml::from_str(&text).map_err(|error| {
        let place = error.span().map_or(String::new(), |span| {
            let TextPosition { line, column } = TextPosition::from_offset(&text, span.start);
            format!(":{line}:{column}")
        });
        wrong(place, error.message())
    })?;
    let given = over.clone();
    let base = toml::from_str(&config.to_toml()?);
    let mut base: Table = base.map_err(|error: toml::de::Error| wrong(String::new(), error.message()))?;
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Array(ports)), Value::Array(over)) if MERGED_BY_NAME.contains(&key.as_str()) => {
                for port in over {
                    merge_port_by_name(ports, port);
                }
            }
            (Some(Value::Array(there)), Value::Array(over)) if APPENDED.contains(&key.as_str()) => {
                there.extend(over);
            }
            (Some(Value::Table(there)), Value::Table(over)) => merge_tables(there, over),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
    let merged = toml::to_string(&base).map_err(|error| wrong(String::new(), &error.to_string()))?;
    let DocumentProblems(problems) = match Config::parse(&merged) {
        Ok(parsed) => {
            let problems = parsed.document.check(&TensorIndex::default(), has);
            if problems.0.is_empty() {
                return Ok(parsed.document);
            }
            problems
        }
        Err(error) => match error.downcast() {
            Ok(Problem::Document(problems)) => problems,
            Ok(problem) => return Err(at(path)(problem)),
            Err(error) => return Err(at(path)(error)),
        },
    };
    // Problems are reported at their place in the user's file: the user has never seen the merged text.
    let problems = problems.into_iter().map(|problem| DocumentProblem {
        document: path.display().to_string(),
        place: find_position(&text, &key_in_fields_file(&problem.key, &base, &given)),
        ..problem
    });
    let problem = open::Problem::Document(DocumentProblems(problems.collect()));
    Err(at(path)(problem))
}

/// Returns the key in the user's file of the value at `key` in the merged table. Entries of `[[input]]` and `[[output]]` are
/// matched by name.
fn key_in_fields_file(key: &str, merged: &Table, given: &Table) -> String {
    let named = || {
        let (array, rest) = key.split_once('[')?;
        let (index, rest) = rest.split_once(']')?;
        let ports = |table: &'_ Table| table.get(array).and_then(Value::as_array).cloned();
        let name = ports(merged)?.get(index.parse::<usize>().ok()?)?.get("name")?.clone();
        let index = ports(given)?.iter().position(|port| port.get("name") == Some(&name))?;
        MERGED_BY_NAME.contains(&array).then(|| format!("{array}[{index}]{rest}"))
    };
    named().unwrap_or_else(|| key.to_owned())
}

/// Merges `over` into `there`. Two levels, as in `[runner]` and `[runner.opts]`, are the maximum depth of the format.
fn merge_tables(there: &mut Table, over: Table) {
    for (key, value) in over {
        match (there.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(over)) => inner.extend(over),
            (_, value) => {
                there.insert(key, value);
            }
        }
    }
}

fn merge_port_by_name(ports: &mut Vec<Value>, over: Value) {
    let name = over.get("name").cloned();
    let same = ports.iter_mut().find(|port| name.is_some() && port.get("name").cloned() == name);
    match (same, over) {
        (Some(Value::Table(port)), Value::Table(over)) => port.extend(over),
        (_, over) => ports.push(over),
    }
}
