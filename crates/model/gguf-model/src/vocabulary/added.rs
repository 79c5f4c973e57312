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
use crate::config::GgufConfig;

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

/// Tokens that classes of tokenizers have unless `tokenizer_config.json` gives others.
const OF_CLASSES: &[(&[&str], Named)] = &[
    (&["LlamaTokenizer", CODE_LLAMA], OF_LLAMA),
    (&["Qwen2Tokenizer", "Qwen3_5Tokenizer"], &[("unk_token", END), ("eos_token", END), ("pad_token", END)]),
    (&["GPT2Tokenizer"], &[("unk_token", END), ("bos_token", END), ("eos_token", END)]),
    (
        &["GPTNeoXTokenizer"],
        &[("unk_token", END), ("bos_token", END), ("eos_token", END), ("pad_token", "<|padding|>")],
    ),
    (
        &["CohereTokenizer"],
        &[
            ("unk_token", "<UNK>"),
            ("bos_token", "<BOS_TOKEN>"),
            ("eos_token", "<|END_OF_TURN_TOKEN|>"),
            ("pad_token", "<PAD>"),
            ("cls_token", "<CLS>"),
            ("sep_token", "<SEP>"),
            ("mask_token", "<MASK_TOKEN>"),
        ],
    ),
    (
        &["GemmaTokenizer"],
        &[
            ("unk_token", "<unk>"),
            ("bos_token", "<bos>"),
            ("eos_token", "<eos>"),
            ("pad_token", "<pad>"),
            ("mask_token", "<mask>"),
        ],
    ),
];
const END: &str = "<|endoftext|>";
const CODE_LLAMA: &str = "CodeLlamaTokenizer";
/// Models whose tokenizers are of a class, whatever `tokenizer_config.json` says.
const OF_ONE_CLASS: [&str; 4] = ["qwen2", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text"];
/// Texts of tokens, by the keys for them.
type Named = &'static [(&'static str, &'static str)];
const OF_LLAMA: Named = &[("unk_token", "<unk>"), ("bos_token", "<s>"), ("eos_token", "</s>")];
/// Tokens that `CodeLlamaTokenizer` adds to those that are listed.
const OF_CODE_LLAMA: [(&str, &str); 5] = [
    ("prefix_token", "▁<PRE>"),
    ("middle_token", "▁<MID>"),
    ("suffix_token", "▁<SUF>"),
    ("eot_token", "▁<EOT>"),
    ("fill_token", "<FILL_ME>"),
];

/// Returns the class of the tokenizer, by `AutoTokenizer`.
fn class_of<'s>(settings: &'s Map<String, Value>, config: &GgufConfig) -> &'s str {
    let named = settings.get("tokenizer_class").and_then(Value::as_str);
    let of_model = match config.architecture.model_type {
        "cohere" | "cohere2" => "CohereTokenizer",
        "gemma3_text" => "GemmaTokenizer",
        "gpt2" | "phi" | "starcoder2" => "GPT2Tokenizer",
        "gpt_neox" | "olmoe" => "GPTNeoXTokenizer",
        qwen if qwen.starts_with("qwen") => "Qwen2Tokenizer",
        _ => "",
    };
    let model_type = config.written.get("model_type").and_then(Value::as_str).unwrap_or_default();
    let named = named.filter(|_| !OF_ONE_CLASS.contains(&model_type));
    named.map_or(of_model, |class| class.strip_suffix("Fast").unwrap_or(class))
}

/// Adds the tokens of the class of a tokenizer to the contents of `tokenizer_config.json`. That of LLaMA is not the class of one of bytes.
pub(super) fn with_tokens_of_class(
    settings: &Map<String, Value>,
    config: &GgufConfig,
    is_of_bytes: bool,
) -> Map<String, Value> {
    let class = Some(class_of(settings, config)).filter(|class| !is_of_bytes || *class != "LlamaTokenizer");
    let class = class.unwrap_or_default();
    let mut all = settings.clone();
    let rows = OF_CLASSES.iter().filter(|(known, _)| known.contains(&class));
    for (key, text) in rows.flat_map(|(_, tokens)| *tokens) {
        all.entry(*key).or_insert_with(|| (*text).into());
    }
    if class == CODE_LLAMA {
        let is_own = |key: &str| OF_CODE_LLAMA.iter().any(|(own, _)| *own == key);
        all = all.into_iter().filter(|(key, _)| !is_own(key)).collect();
        let mut listed = Vec::new();
        for (key, text) in OF_CODE_LLAMA {
            match settings.get(key) {
                Some(Value::Null) => continue,
                given => all.insert(key.to_owned(), given.cloned().unwrap_or_else(|| text.into())),
            };
            listed.push(Value::from(text));
        }
        let [older, _] = EXTRA;
        if let Value::Array(list) = all.entry(older).or_insert_with(|| Value::Array(Vec::new())) {
            list.extend(listed);
        }
    }
    all
}

/// Returns the texts of special tokens.
///
/// # Errors
/// When a document has another form.
pub(super) fn special_texts(
    settings: &Map<String, Value>,
    documents: &Documents<'_>,
) -> Result<HashSet<String>> {
    let mut all = settings.clone();
    if !settings.contains_key(LISTED) {
        all.extend(documents.object("special_tokens_map.json")?.unwrap_or_default());
    }
    Ok(texts(kinds(&all).chain(others(&all)).chain(EXTRA.iter().flat_map(|key| list(&all, key)))).collect())
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
