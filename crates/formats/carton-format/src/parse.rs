//! Parser of `carton.toml`. Fields that Carton's own client requires beyond the specification are filled in and reported.
//!
//! Facts: the Carton v1 specification.

use std::collections::HashSet;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::{
    ANY_SYMBOL, Config, DataType, Dimension, Example, Parsed, Port, References, Runner, SelfTest, Shape,
};
use crate::fields::{DocumentReader, KeyedValue, TakenFields};
use crate::path::is_url;
use crate::problem::{ProblemKind, TextPosition};
use crate::spec::{SHORT_DESCRIPTION_MAX, SPEC_VERSION};
use crate::{Problem, Result};

impl Config {
    /// Parses and checks the document by itself; [`check`](Self::check) compares it with its carton.
    ///
    /// # Errors
    /// All problems of the document, each with its place.
    pub fn parse(text: &str) -> Result<Parsed<Self>> {
        let (mut source, root) = DocumentReader::parse(Self::PATH, text).map_err(Problem::Document)?;
        let mut config = ConfigReader { source: &mut source }.config(&root);
        config.check_symbols(&mut source);
        let (added, places) = source.finish().map_err(Problem::Document)?;
        config.places = places;
        Ok(Parsed { document: config, filled_in: added })
    }

    /// Returns the position of `key`, such as `input[0].shape`; `None` for a document that was not parsed.
    pub fn key_position(&self, key: &str) -> Option<TextPosition> {
        self.places.get(key).copied()
    }

    /// Reports symbols that are used both as a whole shape and as one dimension.
    fn check_symbols(&self, source: &mut DocumentReader<'_>) {
        let ports = || {
            let inputs =
                self.inputs.iter().enumerate().map(|(index, port)| (format!("input[{index}]"), port));
            inputs.chain(self.outputs.iter().enumerate().map(|(i, port)| (format!("output[{i}]"), port)))
        };
        let shapes: HashSet<&str> = ports()
            .filter_map(|(_, port)| match &port.shape {
                Shape::Symbol(shape) if shape != ANY_SYMBOL => Some(shape.as_str()),
                _ => None,
            })
            .collect();
        for (path, port) in ports() {
            let Shape::Dimensions(dimensions) = &port.shape else { continue };
            for dimension in dimensions {
                if let Dimension::Symbol(symbol) = dimension
                    && shapes.contains(symbol.as_str())
                {
                    let kind = ProblemKind::SymbolKinds { symbol: symbol.clone() };
                    source.add_problem(&format!("{path}.shape"), kind);
                }
            }
        }
    }
}

struct ConfigReader<'s, 't> {
    source: &'s mut DocumentReader<'t>,
}

impl<'t> ConfigReader<'_, 't> {
    fn config(&mut self, root: &Spanned<DeTable<'t>>) -> Config {
        let mut root = self.source.fields("", root.get_ref());
        let mut config = Config::new(Runner::new("", "", 1));
        match root.take("spec_version") {
            Some(field) => {
                config.spec_version = self.source.number(&field).unwrap_or(SPEC_VERSION);
                if config.spec_version != SPEC_VERSION {
                    let found = config.spec_version.to_string();
                    let expected = format!("{SPEC_VERSION}, the only version there is");
                    self.source.add_problem(&field.path, ProblemKind::Value { found, expected });
                }
            }
            None => self.source.add_filled_in("", "spec_version"),
        }
        config.model_name = root.string(self.source, "model_name");
        config.short_description = root.string(self.source, "short_description");
        let found = config.short_description.as_ref().map_or(0, |text| text.chars().count());
        if found > SHORT_DESCRIPTION_MAX {
            self.source.add_problem(
                "short_description",
                ProblemKind::TooLong { found, limit: SHORT_DESCRIPTION_MAX },
            );
        }
        config.model_description = root.string(self.source, "model_description");
        config.license = root.string(self.source, "license");
        config.repository = self.url(&mut root, "repository");
        config.homepage = self.url(&mut root, "homepage");
        if let Some(field) = root.take("required_platforms") {
            config.required_platforms = self.platforms(&field);
        }
        config.inputs = self.ports(&mut root, "input");
        config.outputs = self.ports(&mut root, "output");
        for mut table in self.tables(&mut root, "self_test") {
            config.self_tests.push(self.self_test(&mut table));
        }
        for mut table in self.tables(&mut root, "example") {
            config.examples.push(self.example(&mut table));
        }
        match root.take("runner") {
            Some(field) => {
                if let Some(mut table) = self.source.table(&field) {
                    config.runner = self.runner(&mut table);
                }
            }
            None => self.source.add_missing("", "runner"),
        }
        config.other = self.source.remaining_fields(root);
        config
    }

    fn url(&mut self, table: &mut TakenFields<'_, 't>, key: &str) -> Option<String> {
        let text = table.string(self.source, key)?;
        if !is_url(&text) {
            let expected = "an http or https URL".to_owned();
            self.source.add_problem(key, ProblemKind::Value { found: text.clone(), expected });
        }
        Some(text)
    }

    fn platforms(&mut self, field: &KeyedValue<'_, 't>) -> Vec<String> {
        let platforms = self.source.strings(field);
        for (index, platform) in platforms.iter().enumerate() {
            if target_lexicon::Triple::from_str(platform).is_err() {
                let expected = "a target triple such as x86_64-unknown-linux-gnu".to_owned();
                let found = platform.clone();
                self.source
                    .add_problem(&format!("{}[{index}]", field.path), ProblemKind::Value { found, expected });
            }
        }
        platforms
    }

    fn tables<'d>(&mut self, root: &mut TakenFields<'d, 't>, key: &str) -> Vec<TakenFields<'d, 't>> {
        let Some(field) = root.take(key) else { return Vec::new() };
        let items = self.source.list(&field);
        items.iter().filter_map(|item| self.source.table(item)).collect()
    }

    fn ports(&mut self, root: &mut TakenFields<'_, 't>, key: &str) -> Vec<Port> {
        let mut ports: Vec<Port> = Vec::new();
        let mut names = HashSet::new();
        for mut table in self.tables(root, key) {
            let name = table.required_string(self.source, "name");
            let at = format!("{}.name", table.path);
            if name.is_empty() && self.source.has(&at) {
                let (found, expected) = (String::new(), "a name".to_owned());
                self.source.add_problem(&at, ProblemKind::Value { found, expected });
            }
            if !names.insert(name.clone()) && self.source.has(&at) {
                self.source.add_problem(&at, ProblemKind::Duplicate { name: name.clone() });
            }
            let dtype = table.required_string(self.source, "dtype");
            let dtype = self.dtype(&table.path, &dtype);
            let shape = if let Some(field) = table.take("shape") {
                self.shape(&field)
            } else {
                self.source.add_filled_in(&table.path, "shape");
                Shape::any()
            };
            let description = table.string(self.source, "description");
            let internal_name = table.string(self.source, "internal_name");
            let other = self.source.remaining_fields(table);
            ports.push(Port { name, dtype, shape, description, internal_name, other });
        }
        ports
    }

    fn dtype(&mut self, path: &str, name: &str) -> DataType {
        let at = format!("{path}.dtype");
        DataType::from_name(name).unwrap_or_else(|| {
            if self.source.has(&at) {
                let expected = format!("one of {}", DataType::names());
                self.source.add_problem(&at, ProblemKind::Value { found: name.to_owned(), expected });
            }
            DataType::Float32
        })
    }

    fn shape(&mut self, field: &KeyedValue<'_, 't>) -> Shape {
        match field.value.get_ref() {
            DeValue::String(symbol) => Shape::Symbol(self.symbol(field, symbol)),
            DeValue::Array(_) => {
                let items = self.source.list(field);
                let dimensions = items.iter().map(|item| match item.value.get_ref() {
                    DeValue::String(symbol) => Dimension::Symbol(self.symbol(item, symbol)),
                    _ => Dimension::Size(self.source.number(item).unwrap_or_default()),
                });
                Shape::Dimensions(dimensions.collect())
            }
            other => {
                let expected = "a symbol or a list of symbols and integers";
                let found = format!("a {}", other.type_str());
                self.source.add_problem(&field.path, ProblemKind::Type { found, expected });
                Shape::any()
            }
        }
    }

    fn symbol(&mut self, field: &KeyedValue<'_, 't>, symbol: &str) -> String {
        if symbol.is_empty() {
            let (found, expected) = (String::new(), "a symbol of at least one character".to_owned());
            self.source.add_problem(&field.path, ProblemKind::Value { found, expected });
        }
        symbol.to_owned()
    }

    fn references(&mut self, field: &KeyedValue<'_, 't>) -> References {
        let Some(table) = self.source.table(field) else { return References::default() };
        let references = table
            .fields
            .iter()
            .filter_map(|(name, field)| Some((name.clone(), self.source.string(field)?)))
            .collect();
        References(references)
    }

    fn self_test(&mut self, table: &mut TakenFields<'_, 't>) -> SelfTest {
        let inputs = table.take("inputs");
        if inputs.is_none() {
            self.source.add_missing(&table.path, "inputs");
        }
        SelfTest {
            name: table.string(self.source, "name"),
            description: table.string(self.source, "description"),
            inputs: inputs.map(|field| self.references(&field)).unwrap_or_default(),
            expected_out: table.take("expected_out").map(|field| self.references(&field)),
            other: self.source.remaining_fields(std::mem::replace(
                table,
                TakenFields { path: String::new(), fields: Vec::new() },
            )),
        }
    }

    fn example(&mut self, table: &mut TakenFields<'_, 't>) -> Example {
        let inputs = table.take("inputs");
        if inputs.is_none() {
            self.source.add_missing(&table.path, "inputs");
        }
        let sample_out = table.take("sample_out");
        if sample_out.is_none() {
            self.source.add_filled_in(&table.path, "sample_out");
        }
        Example {
            name: table.string(self.source, "name"),
            description: table.string(self.source, "description"),
            inputs: inputs.map(|field| self.references(&field)).unwrap_or_default(),
            sample_out: sample_out.map(|field| self.references(&field)).unwrap_or_default(),
            other: self.source.remaining_fields(std::mem::replace(
                table,
                TakenFields { path: String::new(), fields: Vec::new() },
            )),
        }
    }

    fn runner(&mut self, table: &mut TakenFields<'_, 't>) -> Runner {
        let name = table.required_string(self.source, "runner_name");
        let framework = table.required_string(self.source, "required_framework_version");
        let at = "runner.required_framework_version";
        if self.source.has(at) && semver::VersionReq::parse(&framework).is_err() {
            let expected = "a semver requirement such as =2.0".to_owned();
            self.source.add_problem(at, ProblemKind::Value { found: framework.clone(), expected });
        }
        let mut runner = Runner::new(&name, &framework, 1);
        match table.take("runner_compat_version") {
            Some(field) => runner.runner_compat_version = self.source.number(&field).unwrap_or(1),
            None => self.source.add_filled_in(&table.path, "runner_compat_version"),
        }
        if let Some(opts) = table.take("opts").and_then(|field| self.source.table(&field)) {
            for (_, field) in &opts.fields {
                let found = match field.value.get_ref() {
                    DeValue::Datetime(_) => "a date",
                    DeValue::Array(_) => "a list",
                    DeValue::Table(_) => "a table",
                    _ => continue,
                };
                let expected = "an integer, a float, a string or a boolean";
                self.source.add_problem(&field.path, ProblemKind::Type { found: found.to_owned(), expected });
            }
            runner.opts = self.source.remaining_fields(opts);
        }
        let rest = std::mem::replace(table, TakenFields { path: String::new(), fields: Vec::new() });
        runner.other = self.source.remaining_fields(rest);
        runner
    }
}
