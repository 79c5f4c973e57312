//! Tokens that other documents name, which `AutoTokenizer` adds to those of tokenizer.json.
//!
//! Facts: `_from_pretrained` in `tokenization_utils_base.py` and `TokenizersBackend` in `tokenization_utils_tokenizers.py` of `transformers`
//! 5.23. A token that is new gets the next id, whatever its document says.

use std::collections::HashSet;

use byte_source::Result;
use serde_json::{Map, Value};

use super::damaged;
use super::special::KINDS;
use super::tokenizer_json::AddedToken;
use crate::Documents;

/// Keys of lists of special tokens, or of objects with names. The first is the older one.
const EXTRA: [&str; 2] = ["additional_special_tokens", "extra_special_tokens"];
const LISTED: &str = "added_tokens_decoder";

/// A token that a document names.
#[derive(Debug)]
pub(super) struct NamedToken {
    pub(super) text: String,
    pub(super) is_special: bool,
    /// True if it changes nothing in a token that was added before.
    pub(super) is_only_new: bool,
}

/// Returns the tokens that `tokenizer_config.json` lists with their ids.
///
/// # Errors
/// When the list has another form.
pub(super) fn listed_tokens(settings: &Map<String, Value>) -> Result<Vec<AddedToken>> {
    let list = settings.get(LISTED).and_then(Value::as_object);
    let token = |(id, token): (&String, &Value)| {
        let special = token.get("special").and_then(Value::as_bool) == Some(true);
        let content = token.get("content")?.as_str()?.to_owned();
        Some(AddedToken { id: id.parse().ok()?, content, special })
    };
    let tokens: Option<Vec<AddedToken>> = list.into_iter().flatten().map(token).collect();
    tokens.ok_or_else(|| damaged("tokenizer_config.json", format_args!("`{LISTED}` has another form")))
}

/// Returns the tokens that documents besides tokenizer.json name, in the order in which they are added. A text may occur several times.
///
/// # Errors
/// When a document has another form.
pub(super) fn named_tokens(
    settings: &Map<String, Value>,
    documents: &Documents<'_>,
    known: &[AddedToken],
) -> Result<Vec<NamedToken>> {
    let mut listed = listed_tokens(settings)?;
    let mut all = settings.clone();
    // These documents only count without that list.
    if !settings.contains_key(LISTED) {
        all.extend(documents.object("special_tokens_map.json")?.unwrap_or_default());
        let [older, newer] = EXTRA;
        let ids: HashSet<u64> = known.iter().map(|token| token.id).collect();
        let special: HashSet<String> =
            texts(kinds(&all).chain(list(&all, newer)).chain(list(settings, older))).collect();
        for (content, id) in documents.object("added_tokens.json")?.unwrap_or_default() {
            if let Some(id) = id.as_u64().filter(|id| !ids.contains(id)) {
                listed.push(AddedToken { id, special: special.contains(&content), content });
            }
        }
    }
    listed.sort_by_key(|token| token.id);
    // What the list leaves out is not compared with tokenizer.json.
    let has_list = settings.contains_key(LISTED);
    let in_list: HashSet<&str> = listed.iter().map(|token| token.content.as_str()).collect();
    let is_left_out = |text: &str| has_list && !in_list.contains(text);
    let named = texts(kinds(&all).chain(others(&all)));
    let named = named.map(|text| NamedToken { is_only_new: is_left_out(&text), is_special: true, text });
    let named: Vec<NamedToken> = named.collect();
    let lists = texts(EXTRA.iter().flat_map(|key| list(&all, key)));
    let lists = lists.map(|text| NamedToken { text, is_special: true, is_only_new: true });
    let listed = listed.into_iter().map(|AddedToken { content: text, special: is_special, .. }| NamedToken {
        text,
        is_special,
        is_only_new: false,
    });
    Ok(listed.chain(named).chain(lists).collect())
}

fn kinds(settings: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    KINDS.iter().filter_map(|kind| settings.get(&format!("{kind}_token")))
}

/// Returns special tokens of other kinds.
fn others(settings: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let is_other = |key: &str| key.strip_suffix("_token").is_some_and(|kind| !KINDS.contains(&kind));
    let own = settings.iter().filter(move |(key, value)| is_other(key) && value.is_string());
    let objects = EXTRA.iter().filter_map(|key| settings.get(*key)?.as_object());
    own.map(|(_, value)| value).chain(objects.flat_map(Map::values))
}

fn list<'s>(settings: &'s Map<String, Value>, key: &str) -> impl Iterator<Item = &'s Value> {
    settings.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn texts<'v>(tokens: impl Iterator<Item = &'v Value>) -> impl Iterator<Item = String> {
    tokens.filter_map(|token| Some(token.as_str().or_else(|| token.get("content")?.as_str())?.to_owned()))
}
