//! Finds tokens that the tokenizer next to an adapter has, and that of the base lacks.
//!
//! Facts: `added_tokens` of `tokenizer.json`, `added_tokens_decoder` of `tokenizer_config.json`, and `added_tokens.json`, as `transformers`
//! 4 and 5 write them.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use crate::files::DocumentCache;
use crate::{Note, Result};

const DOCUMENTS: [&str; 3] = ["tokenizer.json", "tokenizer_config.json", "added_tokens.json"];
/// Tokens that a note shows.
const SHOWN: usize = 3;

#[derive(Deserialize)]
struct Added {
    content: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AddedTokens {
    added_tokens: Vec<Added>,
    added_tokens_decoder: serde_json::Map<String, Value>,
}

/// Returns a note on the tokens that only the tokenizer of the adapter `name` has, if the base has one.
///
/// # Errors
/// When a document cannot be read.
pub(super) fn added_tokens_note(
    name: &str,
    adapter: &DocumentCache,
    base: &DocumentCache,
) -> Result<Option<Note>> {
    let mut tokens = BTreeSet::new();
    for document in DOCUMENTS {
        let Some(text) = adapter.read(document)? else { continue };
        let AddedTokens { added_tokens, added_tokens_decoder } =
            serde_json::from_str(&text).unwrap_or_default();
        tokens.extend(added_tokens.into_iter().map(|token| token.content));
        let content = |token: &Value| Some(token.get("content")?.as_str()?.to_owned());
        tokens.extend(added_tokens_decoder.values().filter_map(content));
        if document == "added_tokens.json" {
            let by_text: serde_json::Map<String, Value> = serde_json::from_str(&text).unwrap_or_default();
            tokens.extend(by_text.into_iter().map(|(token, _)| token));
        }
    }
    let mut texts = Vec::new();
    if !tokens.is_empty() {
        for document in DOCUMENTS {
            texts.extend(base.read(document)?);
        }
    }
    // A token of the base is somewhere in its documents, as an added one or in the vocabulary.
    tokens.retain(|token| {
        let token = Value::from(token.as_str()).to_string();
        !texts.iter().any(|text| text.contains(&token))
    });
    let count = tokens.len();
    let note = || Note::AddedTokens {
        name: name.to_owned(),
        count,
        first: tokens.into_iter().take(SHOWN).collect(),
    };
    Ok((count > 0 && !texts.is_empty()).then(note))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn tokens_of_the_adapter_alone_are_named() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let written = |name: &str, documents: &[(&str, &str)]| {
            let folder = folder.path().join(name);
            fs::create_dir(&folder).expect("a new folder");
            for (document, text) in documents {
                fs::write(folder.join(document), text).expect("a file");
            }
            DocumentCache::next_to(&folder.join("model.safetensors").as_path().into())
        };
        let base = written(
            "base",
            &[(
                "tokenizer.json",
                r#"{"added_tokens": [{"id": 0, "content": "<s>"}], "model": {"vocab": {"<pad>": 1}}}"#,
            )],
        );
        let adapter = written(
            "adapter",
            &[
                (
                    "tokenizer.json",
                    r#"{"added_tokens": [{"id": 0, "content": "<s>"}, {"id": 2, "content": "<a>"}]}"#,
                ),
                (
                    "tokenizer_config.json",
                    r#"{"added_tokens_decoder": {"1": {"content": "<pad>"}, "3": {"content": "<b>"}}}"#,
                ),
                ("added_tokens.json", r#"{"<c>": 4, "<d>": 5}"#),
            ],
        );
        let none = written("none", &[("tokenizer.json", "[")]);
        let noted = |of, on| {
            added_tokens_note("it", of, on).expect("the documents are read").map(|note| note.to_string())
        };
        assert_eq!(
            noted(&adapter, &base).as_deref(),
            Some(
                "the tokenizer of it has 4 tokens that the base's lacks, such as `<a>`, `<b>`, `<c>`; the output keeps the base's tokenizer"
            )
        );
        for (of, on) in [(&base, &base), (&none, &base), (&adapter, &DocumentCache::default())] {
            assert_eq!(noted(of, on), None);
        }
    }
}
