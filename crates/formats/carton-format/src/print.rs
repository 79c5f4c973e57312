//! Printer of `carton.toml`: the top-level keys, the inputs and outputs one by one, and the other tables.
//!
//! `toml` keeps a table for each entry of an array until the document is complete, which takes more memory than the text.
//! Facts: TOML 1.0, where the keys of the document precede its first table.

use std::borrow::Cow;

use serde::Serialize;
use toml::{Table, Value};

use crate::config::{Config, Example, Port, Runner, SelfTest};
use crate::spec::SHORT_DESCRIPTION_MAX;
use crate::{Problem, Result};

#[derive(Serialize)]
struct TopLevelKeys<'c> {
    spec_version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_name: Option<&'c str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    short_description: Option<&'c str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_description: Option<&'c str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    license: Option<&'c str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repository: Option<&'c str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    homepage: Option<&'c str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    required_platforms: &'c [String],
    #[serde(flatten)]
    other: Table,
}

/// Tables after the inputs and outputs.
#[derive(Serialize)]
struct TrailingTables<'c> {
    #[serde(rename = "self_test", skip_serializing_if = "<[_]>::is_empty")]
    self_tests: &'c [SelfTest],
    #[serde(rename = "example", skip_serializing_if = "<[_]>::is_empty")]
    examples: &'c [Example],
    runner: &'c Runner,
    #[serde(flatten)]
    other: Table,
}

/// One input or output, printed as an array of one table.
#[derive(Default, Serialize)]
struct PortTable<'p> {
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<[&'p Port; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<[&'p Port; 1]>,
}

impl Config {
    /// Prints the document as TOML.
    ///
    /// # Errors
    /// When the short description is too long, or a number does not fit TOML's 63 bits.
    pub fn to_toml(&self) -> Result<String, Problem> {
        self.to_toml_with(std::iter::empty())
    }

    /// Prints the document as TOML, with `outputs` after its own outputs. The outputs are printed one by one, because a
    /// model may have a million.
    ///
    /// # Errors
    /// As [`to_toml`](Self::to_toml).
    pub fn to_toml_with(&self, outputs: impl Iterator<Item = Port>) -> Result<String, Problem> {
        let found = self.short_description.as_ref().map_or(0, |text| text.chars().count());
        if found > SHORT_DESCRIPTION_MAX {
            return Err(Problem::ShortDescription { found });
        }
        print_config(self, outputs)
            .map_err(|error| Problem::Print { document: Self::PATH, reason: error.to_string() })
    }
}

/// Prints `config`, with `outputs` after its own outputs.
fn print_config(config: &Config, outputs: impl Iterator<Item = Port>) -> Result<String, toml::ser::Error> {
    let (tables, values) = config.other.clone().into_iter().partition(|(_, value)| has_header(value));
    let head = TopLevelKeys {
        spec_version: config.spec_version,
        model_name: config.model_name.as_deref(),
        short_description: config.short_description.as_deref(),
        model_description: config.model_description.as_deref(),
        license: config.license.as_deref(),
        repository: config.repository.as_deref(),
        homepage: config.homepage.as_deref(),
        required_platforms: &config.required_platforms,
        other: values,
    };
    let tail = TrailingTables {
        self_tests: &config.self_tests,
        examples: &config.examples,
        runner: &config.runner,
        other: tables,
    };
    let mut text = toml::to_string(&head)?;
    let mut add = |part: String| {
        text.push('\n');
        text.push_str(&part);
    };
    for port in &config.inputs {
        add(toml::to_string(&PortTable { input: Some([port]), ..PortTable::default() })?);
    }
    for port in config.outputs.iter().map(Cow::Borrowed).chain(outputs.map(Cow::Owned)) {
        add(toml::to_string(&PortTable { output: Some([&port]), ..PortTable::default() })?);
    }
    add(toml::to_string(&tail)?);
    Ok(text)
}

/// Returns true if a value is printed under its own table header.
fn has_header(value: &Value) -> bool {
    match value {
        Value::Table(_) => true,
        Value::Array(items) => !items.is_empty() && items.iter().all(Value::is_table),
        _ => false,
    }
}
