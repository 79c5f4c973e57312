//! Card of a model: the YAML at the start of its README.md.
//!
//! Facts: `load_model_card` and `apply_metadata_heuristic` in `metadata.py` of `gguf` 0.19.0.

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

/// Levels of lists and maps that are kept.
const LEVELS_MAX: usize = 8;
/// Longest front matter that is read, in bytes.
const CARD_MAX: usize = 1 << 20;

/// Returns the values of a card, where each scalar is a text; empty if there are none, or they are not YAML.
pub(crate) fn read_card(readme: &str) -> Map<String, Value> {
    let mut lines = readme.lines();
    if lines.next() != Some("---") {
        return Map::new();
    }
    let front: String = lines.take_while(|line| *line != "---").flat_map(|line| [line, "\n"]).collect();
    if front.len() > CARD_MAX {
        return Map::new();
    }
    match read_yaml(&front.replace('\t', "  ")) {
        Some(Value::Object(card)) => card,
        _ => Map::new(),
    }
}

/// List or map under construction, with the key that waits for its value.
enum Open {
    List(Vec<Value>),
    Map(Map<String, Value>, Option<String>),
}

fn read_yaml(text: &str) -> Option<Value> {
    let mut open: Vec<Open> = Vec::new();
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let done = match event.ok()?.0 {
            Event::Scalar(text, style, ..) => {
                let is_null =
                    style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                if is_null { Value::Null } else { Value::String(text.into_owned()) }
            }
            Event::SequenceStart(..) => {
                open.push(Open::List(Vec::new()));
                continue;
            }
            Event::MappingStart(..) => {
                open.push(Open::Map(Map::new(), None));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop()? {
                Open::List(list) => Value::Array(list),
                Open::Map(map, _) => Value::Object(map),
            },
            Event::Alias(_) => Value::Null,
            _ => continue,
        };
        let depth = open.len();
        match open.last_mut() {
            None => return Some(done),
            Some(_) if depth > LEVELS_MAX => return None,
            Some(Open::List(list)) => list.push(done),
            Some(Open::Map(map, key)) => match (key.take(), done) {
                (Some(key), value) => drop(map.insert(key, value)),
                (None, Value::String(text)) => *key = Some(text),
                (None, _) => *key = Some(String::new()),
            },
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_front_matter_is_read() {
        let card = read_card("---\nlicense: mit\nlanguage:\n- no\n- en\nx: {a: [1]}\ny: ~\n---\n# name: b\n");
        let expected = json!({"license": "mit", "language": ["no", "en"], "x": {"a": ["1"]}, "y": null});
        assert_eq!(Value::Object(card), expected);
        for text in ["", "# Title", "---\n- a\n---\n", "---\na: [\n---\n"] {
            assert!(read_card(text).is_empty(), "{text:?}");
        }
    }
}
