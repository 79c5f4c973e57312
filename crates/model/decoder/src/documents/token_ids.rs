//! Ids of the tokens that begin and end a text, for a generated `config.json`.
//!
//! Facts: `generation_config.json`, `tokenizer_config.json`, `special_tokens_map.json` and `tokenizer.json` as Hugging Face's
//! `transformers` 5.23 and `tokenizers` write them.

use serde_json::Value;

use crate::{Problem, Result};

/// Texts of the documents that state the ids of tokens, as far as they are next to a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct TokenDocuments {
    /// Text of `generation_config.json`, which has the ids themselves.
    pub generation_config: Option<String>,
    /// Text of `tokenizer_config.json`, which has the texts of the tokens, and perhaps their ids.
    pub tokenizer_config: Option<String>,
    /// Text of `special_tokens_map.json`, which has the texts of the tokens.
    pub special_tokens_map: Option<String>,
    /// Text of `tokenizer.json`, which has the ids of texts.
    pub tokenizer: Option<String>,
}

/// Ids of Meta's tokenizers, after the vocabulary size: `(vocab, begin, end)`.
const META_IDS: &[(u64, u64, u64)] = &[(32_000, 1, 2), (32_016, 1, 2), (128_256, 128_000, 128_001)];

/// Ids of the tokens that begin and end a text, as `config.json` has them; `null` if they are unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TokenIds {
    pub(crate) begin: Value,
    pub(crate) end: Value,
}

impl TokenIds {
    /// Reads the ids from the documents. An id that no document states is that of Meta's tokenizer of the same size, if
    /// there is one.
    ///
    /// # Errors
    /// When a document is not JSON.
    pub(crate) fn from_documents(documents: &TokenDocuments, vocab: u64) -> Result<Self> {
        let parse = |file, text: &Option<String>| {
            let value = text.as_deref().map(serde_json::from_str::<Value>).transpose();
            value.map(Option::unwrap_or_default).map_err(|error| Problem::Document { file, error })
        };
        let generation = parse("generation_config.json", &documents.generation_config)?;
        let config = parse("tokenizer_config.json", &documents.tokenizer_config)?;
        let map = parse("special_tokens_map.json", &documents.special_tokens_map)?;
        let tokenizer = parse("tokenizer.json", &documents.tokenizer)?;
        let meta = META_IDS.iter().find(|(size, ..)| *size == vocab);
        let find = |key: &str, meta: Option<u64>| {
            let stated = generation.get(format!("{key}_id")).filter(|ids| are_ids(ids, vocab)).cloned();
            let text = || [&config, &map].into_iter().find_map(|document| token_text(document.get(key)?));
            let id = || text().and_then(|text| token_id(text, &config, &tokenizer)).filter(|id| *id < vocab);
            stated.or_else(|| id().or(meta).map(Value::from)).unwrap_or_default()
        };
        Ok(Self {
            begin: find("bos_token", meta.map(|(_, begin, _)| *begin)),
            end: find("eos_token", meta.map(|(_, _, end)| *end)),
        })
    }

    pub(crate) fn unknown_keys(&self) -> Vec<&'static str> {
        let keys = [("bos_token_id", &self.begin), ("eos_token_id", &self.end)];
        keys.into_iter().filter(|(_, id)| id.is_null()).map(|(key, _)| key).collect()
    }
}

/// Returns true for an id below `vocab`, or a list of them.
fn are_ids(value: &Value, vocab: u64) -> bool {
    let is_id = |value: &Value| value.as_u64().is_some_and(|id| id < vocab);
    match value.as_array() {
        Some(ids) => !ids.is_empty() && ids.iter().all(is_id),
        None => is_id(value),
    }
}

fn token_text(token: &Value) -> Option<&str> {
    token.as_str().or_else(|| token.get("content")?.as_str())
}

fn token_id(text: &str, config: &Value, tokenizer: &Value) -> Option<u64> {
    let has_text = |token: &Value| token_text(token) == Some(text);
    let decoder = config.get("added_tokens_decoder").and_then(Value::as_object);
    let key = decoder.and_then(|decoder| decoder.iter().find(|(_, token)| has_text(token)));
    let row = || tokenizer.get("added_tokens")?.as_array()?.iter().find(|token| has_text(token));
    key.and_then(|(id, _)| id.parse().ok()).or_else(|| row()?.get("id")?.as_u64())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ids(documents: &TokenDocuments, vocab: u64) -> (Value, Value) {
        let TokenIds { begin, end } = TokenIds::from_documents(documents, vocab).expect("JSON");
        (begin, end)
    }

    #[test]
    fn ids_come_from_the_first_document_that_has_them() {
        let tokenizer_config = Some(
            json!({
                "bos_token": "<s>",
                "eos_token": {"content": "</s>"},
                "added_tokens_decoder": {"5": {"content": "<s>"}},
            })
            .to_string(),
        );
        let rows = json!([{"id": 6, "content": "</s>"}, {"id": 7, "content": "<s>"}]);
        let tokenizer = Some(json!({"added_tokens": rows}).to_string());
        let mut documents = TokenDocuments { tokenizer_config, tokenizer, ..TokenDocuments::default() };
        assert_eq!(ids(&documents, 32_000), (5.into(), 6.into()));
        // An id outside of the vocabulary is that of another tokenizer.
        assert_eq!(ids(&documents, 6), (5.into(), Value::Null));
        documents.generation_config = Some(json!({"bos_token_id": null, "eos_token_id": [8, 9]}).to_string());
        assert_eq!(ids(&documents, 10), (5.into(), json!([8, 9])));
        documents.tokenizer_config = None;
        assert_eq!(ids(&documents, 10), (Value::Null, json!([8, 9])));
        documents.special_tokens_map = Some(json!({"bos_token": "<s>"}).to_string());
        assert_eq!(ids(&documents, 10), (7.into(), json!([8, 9])));
    }

    #[test]
    fn metas_tokenizers_are_known_by_their_size() {
        let nothing = TokenDocuments::default();
        assert_eq!(ids(&nothing, 128_256), (128_000.into(), 128_001.into()));
        assert_eq!(ids(&nothing, 256), (Value::Null, Value::Null));
        let found = TokenIds::from_documents(&nothing, 256).expect("nothing to parse");
        assert_eq!(found.unknown_keys(), ["bos_token_id", "eos_token_id"]);
        let broken = TokenDocuments { generation_config: Some("[".to_owned()), ..nothing };
        assert!(TokenIds::from_documents(&broken, 256).is_err());
    }
}
