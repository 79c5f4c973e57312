//! Differences of the values that are not tensors: epochs, hyperparameters, metadata.

use std::collections::BTreeMap;

use open::{ValueRow, ValueRows};
use serde_json::Value as Json;

use crate::compare::report::{Change, ValueDifference};

#[derive(Debug, Default)]
pub(crate) struct ValueDifferences {
    /// Values that differ, sorted by path.
    pub(crate) rows: Vec<ValueDifference>,
    /// Number of values that are equal as far as they are rendered, but too large to be rendered as a whole.
    pub(crate) cut: usize,
}

/// Compares the values of two inputs by their paths.
pub(crate) fn compare_values(a: &ValueRows, b: &ValueRows) -> ValueDifferences {
    let mut ours: BTreeMap<String, Json> = by_path(a).collect();
    let mut found = ValueDifferences::default();
    for (path, theirs) in by_path(b) {
        match ours.remove(&path) {
            Some(value) if value == theirs => {
                found.cut = found.cut.saturating_add(usize::from(is_cut(&value)));
            }
            Some(value) => {
                found.rows.push(ValueDifference {
                    path,
                    change: Change::Changed,
                    a: Some(value),
                    b: Some(theirs),
                });
            }
            None => {
                found.rows.push(ValueDifference { path, change: Change::OnlyInB, a: None, b: Some(theirs) });
            }
        }
    }
    let rest = ours.into_iter();
    found.rows.extend(rest.map(|(path, value)| ValueDifference {
        path,
        change: Change::OnlyInA,
        a: Some(value),
        b: None,
    }));
    found.rows.sort_by(|first, second| first.path.cmp(&second.path));
    found
}

fn by_path(values: &ValueRows) -> impl Iterator<Item = (String, Json)> + '_ {
    values.rows().map(|ValueRow { path, value, .. }| (path, value))
}

/// Returns true if a part of the value was too large to be rendered.
fn is_cut(value: &Json) -> bool {
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        match value {
            Json::Object(members) if members.contains_key("$more") => return true,
            Json::Object(members) => left.extend(members.values()),
            Json::Array(items) => left.extend(items),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values(rows: &[(&str, Json)]) -> ValueRows {
        let row = |(path, value): &(&str, Json)| {
            serde_json::from_value(json!({ "path": path, "type": "object", "value": value })).expect("a row")
        };
        ValueRows::from_document(rows.iter().map(row).collect())
    }

    #[test]
    fn values_are_compared_by_path() {
        let a = values(&[("epoch", json!(3)), ("lr", json!(0.1)), ("big", json!({ "$more": "list" }))]);
        let b = values(&[("lr", json!(0.2)), ("new", json!("x")), ("big", json!({ "$more": "list" }))]);
        let found = compare_values(&a, &b);
        let rows: Vec<_> = found.rows.iter().map(|row| (row.path.as_str(), row.change)).collect();
        assert_eq!(rows, [("epoch", Change::OnlyInA), ("lr", Change::Changed), ("new", Change::OnlyInB)]);
        assert_eq!(found.cut, 1);
    }
}
