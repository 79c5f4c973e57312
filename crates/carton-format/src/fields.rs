//! A TOML document's fields with their places, read one by one; what is wrong is collected.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::problem::{Kind, Place, Problem, Problems};

/// Where each key of a document stands.
pub(crate) type Places = BTreeMap<String, Place>;

/// The problems of one document so far, and where its keys stand.
pub(crate) struct Source<'t> {
    pub(crate) document: String,
    pub(crate) text: &'t str,
    pub(crate) problems: Vec<Problem>,
    pub(crate) places: Places,
}

/// A value and its key path.
#[derive(Clone)]
pub(crate) struct Field<'d, 't> {
    pub(crate) path: String,
    pub(crate) value: &'d Spanned<DeValue<'t>>,
}

impl<'t> Source<'t> {
    /// The document's root, where it can be parsed at all.
    pub(crate) fn parse(document: &str, text: &'t str) -> Result<(Self, Spanned<DeTable<'t>>), Problems> {
        let mut source =
            Self { document: document.to_owned(), text, problems: Vec::new(), places: Places::new() };
        let (table, errors) = DeTable::parse_recoverable(text);
        if errors.is_empty() {
            return Ok((source, table));
        }
        for error in errors {
            let place = error.span().map(|span| Place::of(text, span.start));
            source.push(place, "", Kind::Syntax(error.message().replace('\n', ", ")));
        }
        Err(source.into_problems())
    }

    pub(crate) fn push(&mut self, place: Option<Place>, key: &str, kind: Kind) {
        self.problems.push(Problem { document: self.document.clone(), place, key: key.to_owned(), kind });
    }

    /// Something is wrong with the value at `key`.
    pub(crate) fn wrong(&mut self, key: &str, kind: Kind) {
        let place = self.places.get(key).copied();
        self.push(place, key, kind);
    }

    pub(crate) fn into_problems(mut self) -> Problems {
        self.problems.sort_by_key(|problem| problem.place);
        Problems(self.problems)
    }

    /// Records where the field stands.
    pub(crate) fn field<'d>(&mut self, path: String, value: &'d Spanned<DeValue<'t>>) -> Field<'d, 't> {
        self.places.insert(path.clone(), Place::of(self.text, value.span().start));
        Field { path, value }
    }

    fn wrong_type(&mut self, field: &Field<'_, 't>, expected: &'static str) {
        let found = match field.value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.wrong(&field.path, Kind::Type { found: found.to_owned(), expected });
    }

    pub(crate) fn string(&mut self, field: &Field<'_, 't>) -> Option<String> {
        if let DeValue::String(text) = field.value.get_ref() {
            return Some(text.to_string());
        }
        self.wrong_type(field, "a string");
        None
    }

    pub(crate) fn number(&mut self, field: &Field<'_, 't>) -> Option<u64> {
        if let DeValue::Integer(number) = field.value.get_ref() {
            // TOML's numbers have 63 bits.
            let parsed = i64::from_str_radix(number.as_str(), number.radix()).ok();
            if let Some(parsed) = parsed.and_then(|parsed| u64::try_from(parsed).ok()) {
                return Some(parsed);
            }
            let found = number.as_str().to_owned();
            self.wrong(
                &field.path,
                Kind::Value { found, expected: "a number from 0 to 2^63 - 1".to_owned() },
            );
            return None;
        }
        self.wrong_type(field, "an integer");
        None
    }

    /// The items of a list.
    pub(crate) fn list<'d>(&mut self, field: &Field<'d, 't>) -> Vec<Field<'d, 't>> {
        if let DeValue::Array(items) = field.value.get_ref() {
            let path = &field.path;
            return items
                .iter()
                .enumerate()
                .map(|(index, item)| self.field(format!("{path}[{index}]"), item))
                .collect();
        }
        self.wrong_type(field, "a list");
        Vec::new()
    }

    /// A list of strings.
    pub(crate) fn strings(&mut self, field: &Field<'_, 't>) -> Vec<String> {
        self.list(field).iter().filter_map(|item| self.string(item)).collect()
    }

    /// The fields of a table.
    pub(crate) fn table<'d>(&mut self, field: &Field<'d, 't>) -> Option<Table<'d, 't>> {
        if let DeValue::Table(table) = field.value.get_ref() {
            return Some(self.fields(&field.path, table));
        }
        self.wrong_type(field, "a table");
        None
    }

    /// Every field of `table`, which stands at `path`.
    pub(crate) fn fields<'d>(&mut self, path: &str, table: &'d DeTable<'t>) -> Table<'d, 't> {
        let fields = table.iter().map(|(key, value)| {
            let key = key.get_ref().to_string();
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            (key, self.field(path, value))
        });
        let fields = fields.collect();
        Table { path: path.to_owned(), fields }
    }

    /// What no reader knew, as it is.
    pub(crate) fn rest(&mut self, table: Table<'_, 't>) -> toml::Table {
        let mut rest = toml::Table::new();
        for (key, field) in table.fields {
            match toml::Value::deserialize(ValueDeserializer::from(field.value.clone())) {
                Ok(value) => {
                    rest.insert(key, value);
                }
                Err(error) => self.wrong(&field.path, Kind::Syntax(error.message().to_owned())),
            }
        }
        rest
    }
}

/// A table whose fields are taken out one by one.
pub(crate) struct Table<'d, 't> {
    pub(crate) path: String,
    pub(crate) fields: Vec<(String, Field<'d, 't>)>,
}

impl<'d, 't> Table<'d, 't> {
    pub(crate) fn take(&mut self, key: &str) -> Option<Field<'d, 't>> {
        let at = self.fields.iter().position(|(name, _)| name == key)?;
        Some(self.fields.remove(at).1)
    }

    pub(crate) fn string(&mut self, source: &mut Source<'t>, key: &str) -> Option<String> {
        self.take(key).and_then(|field| source.string(&field))
    }

    /// A string that must be there; empty where it is not.
    pub(crate) fn needed(&mut self, source: &mut Source<'t>, key: &str) -> String {
        let field = self.take(key);
        if field.is_none() {
            self.missing(source, key);
        }
        field.and_then(|field| source.string(&field)).unwrap_or_default()
    }

    pub(crate) fn missing(&self, source: &mut Source<'t>, key: &str) {
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        let place = source.places.get(&self.path).copied();
        source.push(place, &path, Kind::Missing);
    }
}
