//! Reads TOML, in which trainers such as kohya's and torchtitan keep the modules and classes that they import.

use toml::{Table, Value};

use super::judge::Judge;

/// Bytes of a document.
const LEN_MAX: usize = 16 << 20;

/// Reads a document.
///
/// # Errors
/// The reason for which it was not read.
pub(super) fn read(bytes: &[u8], judge: &mut Judge<'_>) -> Result<(), String> {
    if bytes.len() > LEN_MAX {
        return Err(format!("it has more than {LEN_MAX} bytes"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    let table: Table = text.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
    // A value with its key, or the end of a container.
    let mut rest = vec![Some((None::<String>, Value::Table(table)))];
    while let Some(next) = rest.pop() {
        let Some((key, value)) = next else {
            judge.close(0);
            continue;
        };
        if let Some(key) = key {
            judge.text(&key, 0);
        }
        let is_map = value.is_table();
        let items: Vec<(Option<String>, Value)> = match value {
            Value::String(text) => {
                judge.text(&text, 0);
                continue;
            }
            Value::Boolean(true) => {
                judge.text("true", 0);
                continue;
            }
            Value::Table(table) => table.into_iter().map(|(key, value)| (Some(key), value)).collect(),
            Value::Array(array) => array.into_iter().map(|value| (None, value)).collect(),
            _ => {
                judge.other();
                continue;
            }
        };
        if judge.open(is_map) {
            rest.push(None);
            rest.extend(items.into_iter().rev().map(Some));
        }
    }
    Ok(())
}
