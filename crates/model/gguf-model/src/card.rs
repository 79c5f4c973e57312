//! Card of a model: the YAML at the start of its README.md.
//!
//! Facts: `load_model_card` and `apply_metadata_heuristic` in `metadata.py` of `gguf` 0.19.0.

use gguf_format::GgufValue;
use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

use crate::keys::{GgufKeys, json_of};

/// Levels of lists and maps that are kept.
const LEVELS_MAX: usize = 8;
/// Longest front matter that is read, in bytes.
const CARD_MAX: usize = 1 << 20;

/// Keys of a file about the model as a whole, without `general.`, and their names in a card.
const KEYS: &[(&str, &str)] = &[
    ("name", "name"),
    ("author", "author"),
    ("version", "version"),
    ("organization", "organization"),
    ("finetune", "finetune"),
    ("basename", "basename"),
    ("description", "description"),
    ("size_label", "size_label"),
    ("license", "license"),
    ("license.name", "license_name"),
    ("license.link", "license_link"),
    ("source.url", "url"),
    ("source.doi", "doi"),
    ("source.uuid", "uuid"),
    ("source.repo_url", "repo_url"),
    ("tags", "tags"),
    ("languages", "language"),
];
/// Most models and data sets that a card names, and most texts of a list.
const SOURCES_MAX: usize = 1000;

/// Returns the README.md with what the keys of a file say; `None` if they say nothing.
pub(crate) fn write_card(keys: &GgufKeys) -> Option<String> {
    let text = |key: &str| keys.get(&format!("general.{key}")).and_then(GgufValue::text);
    let value = |key: &str| match keys.get(&format!("general.{key}"))? {
        GgufValue::Array(list) => Some(list.iter().take(SOURCES_MAX).filter_map(|it| json_of(&it)).collect()),
        value => json_of(value),
    };
    let mut lines: Vec<(&str, Value)> =
        KEYS.iter().filter_map(|(key, name)| Some((*name, value(key)?))).collect();
    for (key, name) in [("base_model", "base_model"), ("dataset", "datasets")] {
        let id = |number: usize| {
            let url = text(&format!("{key}.{number}.repo_url"));
            let on_hub = url.as_deref().and_then(|url| url.strip_prefix("https://huggingface.co/"));
            let id = on_hub.map(str::to_owned).or_else(|| Some(url?.into_owned()));
            id.or_else(|| Some(text(&format!("{key}.{number}.name"))?.into_owned()))
        };
        let ids: Vec<Value> = (0..SOURCES_MAX).map_while(id).map(Value::from).collect();
        lines.extend((!ids.is_empty()).then(|| (name, ids.into())));
    }
    // A JSON text is one of YAML, too.
    let lines: Vec<String> = lines.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    (!lines.is_empty()).then(|| format!("---\n{}\n---\n", lines.join("\n")))
}

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
    fn a_card_is_written_as_it_is_read() {
        let text = |text: &str| GgufValue::Text(text.as_bytes().to_vec().into());
        let tags = GgufValue::Array(gguf_format::GgufArray::from_texts(["a", "b: c"]));
        let keys = [
            ("general.name", text("A \"name\" – ü\u{1f600}\t")),
            ("general.license.name", text("own")),
            ("general.tags", tags),
            ("general.base_model.0.repo_url", text("https://huggingface.co/org/model")),
            ("general.base_model.1.name", text("Other")),
        ];
        let keys = keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let card = read_card(&write_card(&keys).expect("there are keys"));
        let expected = json!({
            "name": "A \"name\" – ü\u{1f600}\t",
            "license_name": "own",
            "tags": ["a", "b: c"],
            "base_model": ["org/model", "Other"],
        });
        assert_eq!(Value::Object(card), expected);
        assert_eq!(write_card(&GgufKeys::new()), None);
    }

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
