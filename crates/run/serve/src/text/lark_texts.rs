//! Texts and marks in grammars of Lark's language.

use chat_template::words_of_mark;
use serde_json::Value;

use super::TextModel;

/// Returns the rest of a rule for any text up to `end`, which is part of it.
pub(super) fn any_text(text: &TextModel, end: &str) -> String {
    let first = words_of_mark(end).next().unwrap_or_default();
    match text.special_token(first.trim()) {
        Some(_) => format!(": /(?s:.*)/ {}", marked(text, end)),
        None => format!("[suffix={}]: /(?s:.*)/", quoted(end)),
    }
}

pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Returns the grammar of a mark, whose words may be special tokens.
pub(super) fn marked(text: &TextModel, mark: &str) -> String {
    let word = |word: &str| match text.special_token(word.trim()) {
        Some(token) => {
            let (before, after) = word.split_once(word.trim()).unwrap_or_default();
            format!("{} <[{token}]> {}", Value::from(before), Value::from(after))
        }
        None => Value::from(word).to_string(),
    };
    words_of_mark(mark).map(word).collect::<Vec<_>>().join(" ")
}
