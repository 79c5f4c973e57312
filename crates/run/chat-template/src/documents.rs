//! Chat templates and special tokens in the documents of a model.
//!
//! Facts: `chat_template.jinja` counts before the `chat_template` of `tokenizer_config.json`, which is a text or a list of named
//! templates; `chat_template.json` is that of a processor. A special token is a text or an object with `content`. `transformers`
//! writes further templates into the folder `additional_chat_templates`. A class of tokenizers has special tokens of its own, which old
//! folders do not repeat.

use serde_json::{Map, Value};

use crate::meta::{MetaFormat, ReadDocument};
use crate::{Error, Result};

/// Names of special tokens that have a role.
const TOKENS: &[&str] =
    &["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
/// Key of the objects that name further special tokens, or list them.
const EXTRA_TOKENS: &[&str] = &["extra_special_tokens", "model_specific_special_tokens"];
/// Special tokens of classes, without the ending `Fast`, in the order of `TOKENS`; empty where a class has none.
const CLASS_TOKENS: &[(&[&str], [&str; 7])] = &[
    (&["LlamaTokenizer", "CodeLlamaTokenizer"], ["<s>", "</s>", "<unk>", "", "", "", ""]),
    (&["GPT2Tokenizer"], ["<|endoftext|>", "<|endoftext|>", "<|endoftext|>", "", "", "", ""]),
    (&["GPTNeoXTokenizer"], ["<|endoftext|>", "<|endoftext|>", "<|endoftext|>", "", "<|padding|>", "", ""]),
    (
        &["Qwen2Tokenizer", "Qwen3_5Tokenizer"],
        ["", "<|endoftext|>", "<|endoftext|>", "", "<|endoftext|>", "", ""],
    ),
    (&["GemmaTokenizer"], ["<bos>", "<eos>", "<unk>", "", "<pad>", "", "<mask>"]),
    (
        &["CohereTokenizer"],
        ["<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", "<UNK>", "<SEP>", "<PAD>", "<CLS>", "<MASK_TOKEN>"],
    ),
    (&["T5Tokenizer"], ["", "</s>", "<unk>", "", "<pad>", "", ""]),
    (&["XGLMTokenizer"], ["<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", ""]),
];
const CONFIG: &str = "tokenizer_config.json";
/// Name of the template for conversations with tools.
pub(crate) const TOOL_USE: &str = "tool_use";
pub(crate) const DEFAULT: &str = "default";

/// Templates of a model, with the variables that they all have.
pub(crate) struct TemplateDocuments {
    /// Name, file and text of each template.
    pub(crate) templates: Vec<(String, String, String)>,
    pub(crate) tokens: Map<String, Value>,
}

impl TemplateDocuments {
    /// Reads the documents; `None` if there is no template.
    pub(crate) fn read<E: From<Error>>(read: &mut ReadDocument<'_, E>) -> Result<Option<Self>, E> {
        let config = object(CONFIG, read(CONFIG)?)?;
        let map = object("special_tokens_map.json", read("special_tokens_map.json")?)?;
        let mut tokens = config.as_ref().map(class_tokens).unwrap_or_default();
        for document in [&map, &config].into_iter().flatten() {
            add_tokens(&mut tokens, document);
        }
        let mut templates = Vec::new();
        for (name, file) in
            [(DEFAULT, "chat_template.jinja"), (TOOL_USE, "additional_chat_templates/tool_use.jinja")]
        {
            if let Some(bytes) = read(file)? {
                let text = String::from_utf8(bytes).map_err(|_| invalid(file, "it is not text"))?;
                templates.push((name.to_owned(), file.to_owned(), text));
            }
        }
        if templates.is_empty()
            && let Some(config) = &config
        {
            templates = named_templates(CONFIG, config)?;
        }
        if templates.is_empty()
            && let Some(document) = object("chat_template.json", read("chat_template.json")?)?
        {
            templates = named_templates("chat_template.json", &document)?;
        }
        if templates.is_empty()
            && let Some(format) = MetaFormat::find(read)?
        {
            tokens = format.tokens();
            templates.push((DEFAULT.to_owned(), "tokenizer.model".to_owned(), format.template().to_owned()));
        }
        Ok((!templates.is_empty()).then_some(Self { templates, tokens }))
    }
}

fn invalid(file: &str, reason: impl Into<String>) -> Error {
    Error::Invalid { file: file.to_owned(), reason: reason.into() }
}

fn object(file: &str, bytes: Option<Vec<u8>>) -> Result<Option<Map<String, Value>>> {
    let Some(bytes) = bytes else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| invalid(file, error.to_string()))
}

fn named_templates(file: &str, document: &Map<String, Value>) -> Result<Vec<(String, String, String)>> {
    let wrong = || {
        invalid(file, "`chat_template` is neither a text nor a list of objects with `name` and `template`")
    };
    match document.get("chat_template") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![(DEFAULT.to_owned(), file.to_owned(), text.clone())]),
        Some(Value::Array(list)) => {
            let member = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
            let named = |entry| Some((member(entry, "name")?, file.to_owned(), member(entry, "template")?));
            list.iter().map(|entry| named(entry).ok_or_else(wrong)).collect()
        }
        Some(Value::Object(map)) => {
            let named = |(name, text): (&String, &Value)| {
                Ok((name.clone(), file.to_owned(), text.as_str().ok_or_else(wrong)?.to_owned()))
            };
            map.iter().map(named).collect()
        }
        Some(_) => Err(wrong()),
    }
}

/// Returns the special tokens of the class that a configuration names.
fn class_tokens(config: &Map<String, Value>) -> Map<String, Value> {
    let class = config.get("tokenizer_class").and_then(Value::as_str).unwrap_or_default();
    let class = class.strip_suffix("Fast").unwrap_or(class);
    let found = CLASS_TOKENS.iter().find(|(classes, _)| classes.contains(&class));
    let texts = found.map(|(_, texts)| texts).into_iter().flatten();
    let named = TOKENS.iter().zip(texts).filter(|(_, text)| !text.is_empty());
    named.map(|(name, text)| ((*name).to_owned(), Value::from(*text))).collect()
}

fn add_tokens(tokens: &mut Map<String, Value>, document: &Map<String, Value>) {
    let text = |value: &Value| match value {
        Value::String(_) => Some(value.clone()),
        Value::Object(object) => object.get("content").filter(|content| content.is_string()).cloned(),
        _ => None,
    };
    for name in TOKENS {
        match document.get(*name) {
            Some(Value::Null) => drop(tokens.shift_remove(*name)),
            found => tokens.extend(found.and_then(text).map(|text| ((*name).to_owned(), text))),
        }
    }
    for extra in EXTRA_TOKENS.iter().filter_map(|key| document.get(*key)?.as_object()) {
        tokens.extend(extra.iter().filter_map(|(name, value)| Some((name.clone(), text(value)?))));
    }
}
