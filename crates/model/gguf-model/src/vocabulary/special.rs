//! Special tokens: their ids, which of them are added to a text, and templates of chats.
//!
//! Facts: `SpecialVocab` in `vocab.py` of `gguf` 0.19.0. An id is that of `tokenizer_config.json`, whose text an added token has, else
//! that of config.json; the first counts.

use byte_source::Result;
use gguf_format::GgufValue;
use serde_json::{Map, Value, json};

use super::tokenizer_json::TokenizerJson;
use crate::Documents;
use crate::keys::Keys;

pub(super) const KINDS: [&str; 7] = ["bos", "eos", "unk", "sep", "pad", "cls", "mask"];
/// Kinds whose keys have another name.
const NAMES: [(&str, &str); 3] = [("unk", "unknown"), ("sep", "seperator"), ("pad", "padding")];
/// Kinds that can be added to a text.
const ADDED: [&str; 3] = ["bos", "eos", "sep"];

pub(crate) struct Special {
    /// Kinds that are looked up, in their order.
    kinds: Vec<&'static str>,
    ids: Vec<(&'static str, u64)>,
    added: Vec<(&'static str, bool)>,
    template: Option<Value>,
    normalizer: Vec<(&'static str, bool)>,
    /// Number of tokens, if ids are compared with it.
    limit: Option<u64>,
}

impl Special {
    /// Reads the documents.
    ///
    /// # Errors
    /// When one cannot be read.
    pub(crate) fn read(
        documents: &Documents<'_>,
        tokenizer: Option<&TokenizerJson>,
        limit: Option<usize>,
    ) -> Result<Self> {
        let mut special = Self {
            kinds: KINDS.to_vec(),
            ids: Vec::new(),
            added: Vec::new(),
            template: None,
            normalizer: Vec::new(),
            limit: limit.map(|limit| limit as u64),
        };
        let mut config = documents.object("tokenizer_config.json")?;
        if let Some(tokenizer) = tokenizer {
            if let Some(normalizer) = &tokenizer.normalizer {
                special.read_normalizer(normalizer);
            }
            special.read_processors(tokenizer, config.as_mut());
        }
        if let Some(config) = &config {
            special.read_config(config, tokenizer, documents)?;
        }
        let model = documents.object("config.json")?.unwrap_or_default();
        let part = model.get("text_config").and_then(Value::as_object);
        for kind in special.kinds.clone() {
            let key = format!("{kind}_token_id");
            let id = model.get(&key).filter(|id| !id.is_null()).or_else(|| part?.get(&key));
            special.set(kind, id.and_then(Value::as_u64));
        }
        Ok(special)
    }

    /// Sets the keys in their order.
    pub(crate) fn set_keys(&self, keys: &mut Keys) {
        // `gguf` has no key for the token of a class.
        for (kind, id) in self.ids.iter().filter(|(kind, _)| *kind != "cls") {
            let name = NAMES.iter().find(|(known, _)| known == kind).map_or(*kind, |(_, name)| name);
            keys.number(&format!("tokenizer.ggml.{name}_token_id"), u32::try_from(*id).unwrap_or(u32::MAX));
        }
        for (kind, is_added) in self.added.iter().filter(|(kind, _)| ADDED.contains(kind)) {
            keys.flag(&format!("tokenizer.ggml.add_{kind}_token"), *is_added);
        }
        if let Some(template) = &self.template {
            set_template(keys, template);
        }
        for (name, is_set) in &self.normalizer {
            keys.set(&format!("tokenizer.ggml.normalizer.{name}"), GgufValue::Bool(*is_set));
        }
    }

    /// Sets the id of a kind that has none.
    pub(crate) fn set(&mut self, kind: &'static str, id: Option<u64>) {
        let Some(id) = id.filter(|id| self.limit.is_none_or(|limit| *id < limit)) else { return };
        if self.ids.iter().all(|(known, _)| *known != kind) {
            self.ids.push((kind, id));
        }
    }

    fn add(&mut self, kind: &'static str, is_added: bool) {
        match self.added.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, known)) => *known = is_added,
            None => self.added.push((kind, is_added)),
        }
    }

    fn add_default(&mut self, kind: &'static str, is_added: bool) {
        if self.added.iter().all(|(known, _)| *known != kind) {
            self.added.push((kind, is_added));
        }
    }

    fn read_normalizer(&mut self, normalizer: &Value) {
        let parts = normalizer.get("normalizers").and_then(Value::as_array);
        let parts = parts.into_iter().flatten();
        for normalizer in [normalizer].into_iter().chain(parts) {
            let flag = |key: &str| normalizer.get(key).and_then(Value::as_bool);
            let (lowercase, accents) = match normalizer.get("type").and_then(Value::as_str) {
                Some("Lowercase") => (Some(true), None),
                Some("StripAccents") => (None, Some(true)),
                Some("BertNormalizer") => (flag("lowercase"), flag("strip_accents")),
                _ => continue,
            };
            for (name, is_set) in [("lowercase", lowercase), ("strip_accents", accents)] {
                let Some(is_set) = is_set else { continue };
                self.normalizer.retain(|(known, _)| *known != name);
                self.normalizer.push((name, is_set));
            }
        }
        self.normalizer.sort_unstable();
    }

    /// Reads which tokens the post-processors add. May change the tokens of `tokenizer_config.json`.
    fn read_processors(&mut self, tokenizer: &TokenizerJson, mut config: Option<&mut Map<String, Value>>) {
        let token = |config: Option<&Map<String, Value>>, key: &str| {
            config.and_then(|config| config.get(key)).filter(|value| is_set(value)).cloned()
        };
        let mut tokens = Tokens {
            bos: token(config.as_deref(), "bos_token"),
            cls: token(config.as_deref(), "cls_token"),
            eos: token(config.as_deref(), "eos_token"),
            sep: token(config.as_deref(), "sep_token"),
        };
        let has_config = config.is_some();
        let mut put = |key: &str, value: &Option<Value>| {
            if let (Some(config), Some(value)) = (config.as_deref_mut(), value) {
                config.insert(key.to_owned(), value.clone());
            }
        };
        if tokens.bos.is_none() && tokens.cls.is_some() {
            put("bos_token", &tokens.cls);
            tokens.bos.clone_from(&tokens.cls);
        }
        if tokens.eos.is_none() && tokens.sep.is_some() {
            put("eos_token", &tokens.sep);
            tokens.eos.clone_from(&tokens.sep);
        }
        let Some(processor) = &tokenizer.post_processor else { return };
        let several = processor.get("processors").and_then(Value::as_array);
        let all: Vec<&Value> = several.map_or_else(|| vec![processor], |list| list.iter().collect());
        for processor in all {
            match processor.get("type").and_then(Value::as_str) {
                Some("ByteLevel") => {
                    self.add_default("bos", false);
                    self.add_default("eos", false);
                }
                Some("RobertaProcessing") => {
                    for kind in ["bos", "eos", "sep"] {
                        self.add(kind, true);
                    }
                    for (key, at, known) in
                        [("cls_token", "cls", &mut tokens.cls), ("sep_token", "sep", &mut tokens.sep)]
                    {
                        if known.is_none() && has_config {
                            *known = processor.get(at).and_then(|pair| pair.get(0)).cloned();
                            put(key, known);
                        }
                    }
                }
                Some("TemplateProcessing") => {
                    self.read_template(processor, &mut tokens, has_config, &mut put);
                }
                _ => {}
            }
        }
    }

    fn read_template(
        &mut self,
        processor: &Value,
        tokens: &mut Tokens,
        has_config: bool,
        put: &mut dyn FnMut(&str, &Option<Value>),
    ) {
        let list = |key: &str| processor.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        let (single, pair) = (list("single"), list("pair"));
        let id = |item: Option<&Value>| item?.get("SpecialToken")?.get("id").filter(|id| is_set(id)).cloned();
        let mut first = None;
        let mut last_token = None;
        if single.len() > 1 {
            first = id(single.first());
            if first.is_some() {
                let is_known = |tokens: &Tokens| first == tokens.bos || first == tokens.cls;
                if !has_config {
                    tokens.bos.clone_from(&first);
                } else if !is_known(tokens) {
                    for (key, known) in [("bos_token", &mut tokens.bos), ("cls_token", &mut tokens.cls)] {
                        if known.is_none() {
                            put(key, &first);
                            known.clone_from(&first);
                        }
                    }
                }
                self.add("bos", is_known(tokens));
            }
            last_token = id(single.last());
            if last_token.is_some() {
                if has_config && last_token != tokens.eos {
                    let spare = ["eot", "eom"].into_iter().find(|kind| !self.kinds.contains(kind));
                    if let Some(kind) = spare {
                        self.kinds.push(kind);
                        put(&format!("{kind}_token"), &tokens.eos);
                    }
                    put("eos_token", &last_token);
                }
                tokens.eos.clone_from(&last_token);
                self.add("eos", true);
            }
        }
        let starts = first.is_some() && id(pair.first()) == first;
        let ends = last_token.is_some() && id(pair.last()) == last_token;
        let end = pair.len().saturating_sub(ends.into());
        let Some([a, between @ .., b]) = pair.get(usize::from(starts)..end) else { return };
        let sequence =
            |item: &Value| item.get("Sequence").and_then(|it| it.get("id")?.as_str().map(str::to_owned));
        if sequence(a).as_deref() != Some("A") || sequence(b).as_deref() != Some("B") || between.is_empty() {
            return;
        }
        let is_separator = |item: Option<&Value>| {
            let id = id(item);
            id.is_some() && (id == tokens.sep || id == tokens.eos)
        };
        let is_added = is_separator(between.first()) && last_token.is_none()
            || between.len() == 2 && is_separator(between.get(1));
        self.add("sep", is_added);
        if is_added && tokens.sep.is_none() {
            put("sep_token", &tokens.eos);
        }
    }

    fn read_config(
        &mut self,
        config: &Map<String, Value>,
        tokenizer: Option<&TokenizerJson>,
        documents: &Documents<'_>,
    ) -> Result<()> {
        let own = config.get("chat_template");
        let template = match own {
            Some(template) => Some(template.clone()),
            None => match documents.text("chat_template.jinja")? {
                Some(template) => Some(with_others(template, documents)),
                None => documents
                    .object("chat_template.json")?
                    .and_then(|mut document| document.remove("chat_template")),
            },
        };
        self.template = template.filter(|template| template.is_string() || template.is_array());
        for kind in self.kinds.clone() {
            if let Some(is_added) = config.get(&format!("add_{kind}_token")).and_then(Value::as_bool) {
                self.add_default(kind, is_added);
            }
            let token = config.get(&format!("{kind}_token"));
            let content = token.and_then(|token| token.as_str().or_else(|| token.get("content")?.as_str()));
            let added = tokenizer.into_iter().flat_map(|tokenizer| &tokenizer.added_tokens);
            let mut same = added.filter(|added| Some(added.content.as_str()) == content);
            self.set(kind, same.next().map(|added| added.id));
        }
        Ok(())
    }
}

/// Texts of tokens, as `tokenizer_config.json` has them.
struct Tokens {
    bos: Option<Value>,
    cls: Option<Value>,
    eos: Option<Value>,
    sep: Option<Value>,
}

fn is_set(value: &Value) -> bool {
    !value.is_null() && value.as_str() != Some("")
}

/// Returns a template, or a list of it and the others that `transformers` saves next to it.
fn with_others(template: String, documents: &Documents<'_>) -> Value {
    let choice = |name: &str, text: &str| json!({"name": name, "template": text});
    let others: Vec<Value> = documents.templates.iter().map(|(name, text)| choice(name, text)).collect();
    if others.is_empty() {
        return template.into();
    }
    [choice("default", &template)].into_iter().chain(others).collect()
}

fn set_template(keys: &mut Keys, template: &Value) {
    let Value::Array(choices) = template else {
        return keys.text_if("tokenizer.chat_template", template.as_str());
    };
    let (mut default, mut names) = (None, Vec::new());
    for choice in choices {
        let text = |key: &str| choice.get(key).and_then(Value::as_str);
        let name: String = text("name")
            .unwrap_or_default()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        match (name.as_str(), text("template")) {
            ("", _) | (_, None) => {}
            ("default", template) => default = template,
            (_, Some(template)) => {
                keys.text(&format!("tokenizer.chat_template.{name}"), template);
                names.push(name);
            }
        }
    }
    names.sort();
    names.dedup();
    keys.texts("tokenizer.chat_templates", names);
    keys.text_if("tokenizer.chat_template", default);
}
