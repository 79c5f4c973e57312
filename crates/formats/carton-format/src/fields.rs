//! Reader of the fields of a TOML document that records their positions and collects problems.
//!
//! Positions come from the spans of the `toml` crate.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::problem::{DocumentProblem, DocumentProblems, PositionCursor, ProblemKind, TextPosition};

pub(crate) type KeyPositions = BTreeMap<String, TextPosition>;

/// A document while it is read: its problems so far, and the positions of its keys. Positions are byte offsets until the
/// end: counting the lines before each one separately would be quadratic.
pub(crate) struct DocumentReader<'t> {
    pub(crate) document: String,
    pub(crate) text: &'t str,
    problems: Vec<(Option<usize>, DocumentProblem)>,
    /// Problems for missing fields that were filled in.
    added: Vec<(Option<usize>, DocumentProblem)>,
    offsets: BTreeMap<String, usize>,
}

/// A TOML value with its key path.
#[derive(Clone)]
pub(crate) struct KeyedValue<'d, 't> {
    pub(crate) path: String,
    pub(crate) value: &'d Spanned<DeValue<'t>>,
}

impl<'t> DocumentReader<'t> {
    /// Parses the document and returns its root table; fails with all syntax errors.
    pub(crate) fn parse(
        document: &str,
        text: &'t str,
    ) -> Result<(Self, Spanned<DeTable<'t>>), DocumentProblems> {
        let document = document.to_owned();
        let (problems, added) = (Vec::new(), Vec::new());
        let mut source = Self { document, text, problems, added, offsets: BTreeMap::new() };
        let (table, errors) = DeTable::parse_recoverable(text);
        if errors.is_empty() {
            return Ok((source, table));
        }
        for error in errors {
            let kind = ProblemKind::Syntax(error.message().replace('\n', ", "));
            let problem = source.problem("", kind);
            source.problems.push((error.span().map(|span| span.start), problem));
        }
        Err(with_positions(text, source.problems))
    }

    fn problem(&self, key: &str, kind: ProblemKind) -> DocumentProblem {
        DocumentProblem { document: self.document.clone(), place: None, key: key.to_owned(), kind }
    }

    /// Records a problem with the value at `key`.
    pub(crate) fn add_problem(&mut self, key: &str, kind: ProblemKind) {
        let problem = self.problem(key, kind);
        self.problems.push((self.offsets.get(key).copied(), problem));
    }

    /// Records that `key` is missing in the table at `path`.
    pub(crate) fn add_missing(&mut self, path: &str, key: &str) {
        let problem = self.problem(&join_key(path, key), ProblemKind::Missing);
        self.problems.push((self.offsets.get(path).copied(), problem));
    }

    /// Records that `key` is missing in the table at `path` and was filled in.
    pub(crate) fn add_filled_in(&mut self, path: &str, key: &str) {
        let problem = self.problem(&join_key(path, key), ProblemKind::Missing);
        self.added.push((self.offsets.get(path).copied(), problem));
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.offsets.contains_key(key)
    }

    /// Returns the number of problems so far.
    pub(crate) fn problem_count(&self) -> usize {
        self.problems.len()
    }

    /// Returns the problems for filled-in fields, and the positions of the keys.
    ///
    /// # Errors
    /// All problems, in the document's order.
    pub(crate) fn finish(self) -> Result<(DocumentProblems, KeyPositions), DocumentProblems> {
        if !self.problems.is_empty() {
            return Err(with_positions(self.text, self.problems));
        }
        let mut offsets: Vec<(String, usize)> = self.offsets.into_iter().collect();
        offsets.sort_by_key(|(_, offset)| *offset);
        let mut cursor = PositionCursor::new(self.text);
        let places = offsets.into_iter().map(|(key, offset)| (key, cursor.place(offset))).collect();
        Ok((with_positions(self.text, self.added), places))
    }

    /// Records the position of a field and returns it.
    pub(crate) fn field<'d>(&mut self, path: String, value: &'d Spanned<DeValue<'t>>) -> KeyedValue<'d, 't> {
        self.offsets.insert(path.clone(), value.span().start);
        KeyedValue { path, value }
    }

    fn wrong_type(&mut self, field: &KeyedValue<'_, 't>, expected: &'static str) {
        let found = match field.value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.add_problem(&field.path, ProblemKind::Type { found: found.to_owned(), expected });
    }

    pub(crate) fn string(&mut self, field: &KeyedValue<'_, 't>) -> Option<String> {
        if let DeValue::String(text) = field.value.get_ref() {
            return Some(text.to_string());
        }
        self.wrong_type(field, "a string");
        None
    }

    pub(crate) fn number(&mut self, field: &KeyedValue<'_, 't>) -> Option<u64> {
        if let DeValue::Integer(number) = field.value.get_ref() {
            // TOML integers are signed 64-bit numbers.
            let parsed = i64::from_str_radix(number.as_str(), number.radix()).ok();
            if let Some(parsed) = parsed.and_then(|parsed| u64::try_from(parsed).ok()) {
                return Some(parsed);
            }
            let found = number.as_str().to_owned();
            self.add_problem(
                &field.path,
                ProblemKind::Value { found, expected: "a number from 0 to 2^63 - 1".to_owned() },
            );
            return None;
        }
        self.wrong_type(field, "an integer");
        None
    }

    /// Returns the items of an array; records a problem for another type.
    pub(crate) fn list<'d>(&mut self, field: &KeyedValue<'d, 't>) -> Vec<KeyedValue<'d, 't>> {
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

    /// Returns the strings of an array; records a problem for another type.
    pub(crate) fn strings(&mut self, field: &KeyedValue<'_, 't>) -> Vec<String> {
        self.list(field).iter().filter_map(|item| self.string(item)).collect()
    }

    /// Returns the fields of a table; records a problem for another type.
    pub(crate) fn table<'d>(&mut self, field: &KeyedValue<'d, 't>) -> Option<TakenFields<'d, 't>> {
        if let DeValue::Table(table) = field.value.get_ref() {
            return Some(self.fields(&field.path, table));
        }
        self.wrong_type(field, "a table");
        None
    }

    /// Returns every field of `table`, whose key path is `path`.
    pub(crate) fn fields<'d>(&mut self, path: &str, table: &'d DeTable<'t>) -> TakenFields<'d, 't> {
        let fields = table.iter().map(|(key, value)| {
            let key = key.get_ref().to_string();
            let field = self.field(join_key(path, &key), value);
            (key, field)
        });
        let fields = fields.collect();
        TakenFields { path: path.to_owned(), fields }
    }

    pub(crate) fn remaining_fields(&mut self, table: TakenFields<'_, 't>) -> toml::Table {
        let mut rest = toml::Table::new();
        for (key, field) in table.fields {
            match toml::Value::deserialize(ValueDeserializer::from(field.value.clone())) {
                Ok(value) => {
                    rest.insert(key, value);
                }
                Err(error) => self.add_problem(&field.path, ProblemKind::Syntax(error.message().to_owned())),
            }
        }
        rest
    }
}

/// Returns the position of `key`, such as `input[0].dtype`, in a TOML text, or of its innermost part that exists.
pub fn find_position(text: &str, key: &str) -> Option<TextPosition> {
    let (table, _) = DeTable::parse_recoverable(text);
    let mut parts = key.split('.').flat_map(|part| part.split('[')).map(|part| part.trim_end_matches(']'));
    let mut value = table.get_ref().get(parts.next()?)?;
    for part in parts {
        let inner = match value.get_ref() {
            DeValue::Table(table) => table.get(part),
            DeValue::Array(items) => part.parse().ok().and_then(|index: usize| items.get(index)),
            _ => None,
        };
        let Some(inner) = inner else { break };
        value = inner;
    }
    Some(TextPosition::from_offset(text, value.span().start))
}

/// A table whose fields are removed one by one as they are read.
pub(crate) struct TakenFields<'d, 't> {
    pub(crate) path: String,
    pub(crate) fields: Vec<(String, KeyedValue<'d, 't>)>,
}

impl<'d, 't> TakenFields<'d, 't> {
    pub(crate) fn take(&mut self, key: &str) -> Option<KeyedValue<'d, 't>> {
        let at = self.fields.iter().position(|(name, _)| name == key)?;
        Some(self.fields.remove(at).1)
    }

    pub(crate) fn string(&mut self, source: &mut DocumentReader<'t>, key: &str) -> Option<String> {
        self.take(key).and_then(|field| source.string(&field))
    }

    /// Removes a required string and returns it; records a problem and returns an empty string if it is missing.
    pub(crate) fn required_string(&mut self, source: &mut DocumentReader<'t>, key: &str) -> String {
        let field = self.take(key);
        if field.is_none() {
            source.add_missing(&self.path, key);
        }
        field.and_then(|field| source.string(&field)).unwrap_or_default()
    }
}

/// Returns the key path of `key` in the table at `path`.
fn join_key(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Sorts problems by byte offset and converts the offsets into positions.
fn with_positions(text: &str, mut problems: Vec<(Option<usize>, DocumentProblem)>) -> DocumentProblems {
    problems.sort_by_key(|(offset, _)| *offset);
    let mut cursor = PositionCursor::new(text);
    let problems = problems.into_iter().map(|(offset, problem)| DocumentProblem {
        place: offset.map(|offset| cursor.place(offset)),
        ..problem
    });
    DocumentProblems(problems.collect())
}
