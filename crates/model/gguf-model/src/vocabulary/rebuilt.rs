//! The way back: the documents of a tokenizer that the keys of a file describe.
//!
//! A `SentencePiece` model has its pieces in the keys; byte-pair encoding has its merges there, and of the rest of `tokenizer.json` the
//! name of the pre-tokenizer.
//!
//! Facts: `llama-vocab.cpp` of llama.cpp, for what is added to a text by default.

use bytes::Bytes;
use gguf_format::GgufValue;
use sentencepiece_format::{Algorithm, Piece, PieceKind, PieceModel};
use serde_json::{Map, Value, json};

use super::splits::{PreTokenizerRow, byte_level};
use crate::about::SAMPLING;
use crate::card::write_card;
use crate::keys::{GgufKeys, json_of};

/// Largest number of tokens; four times that of any model.
const TOKENS_MAX: usize = 1 << 20;
/// Largest number of merges.
const MERGES_MAX: usize = 1 << 21;

/// Documents next to a model that the keys of a file describe.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct KeyDocuments {
    /// Names and contents.
    pub documents: Vec<(String, Vec<u8>)>,
    /// Why there is no tokenizer among them; `None` if there is one.
    pub reason: Option<String>,
}

/// Returns the documents of the tokenizer, its templates of chats and its stop tokens, and the card of the model.
pub fn key_documents(keys: &GgufKeys) -> KeyDocuments {
    let tokens = Vocabulary::read(keys);
    let mut found = KeyDocuments::default();
    let mut add = |name: &str, bytes: Vec<u8>| found.documents.push((name.to_owned(), bytes));
    add("tokenizer_config.json", tokens.settings().to_string().into_bytes());
    add("generation_config.json", tokens.generation().to_string().into_bytes());
    if let Some(card) = write_card(keys) {
        add("README.md", card.into_bytes());
    }
    match tokens.tokenizer() {
        Ok((name, bytes)) => add(name, bytes),
        Err(reason) => found.reason = Some(reason),
    }
    found
}

/// What a `tokenizer.json` has besides the keys of a file.
struct Form {
    normalizer: Value,
    pre_tokenizer: Value,
    decoder: Value,
    unknown: Option<String>,
    /// True if a character without a token is split into tokens for its bytes.
    falls_back: bool,
    ignores_merges: bool,
}

/// The tokens of a file, and the keys about them.
struct Vocabulary<'k> {
    keys: &'k GgufKeys,
    tokens: Vec<Bytes>,
    kinds: Vec<PieceKind>,
}

impl<'k> Vocabulary<'k> {
    fn read(keys: &'k GgufKeys) -> Self {
        let tokens = array(keys, "tokens").filter_map(|token| match token {
            GgufValue::Text(text) => Some(text),
            _ => None,
        });
        let tokens: Vec<Bytes> = tokens.take(TOKENS_MAX.saturating_add(1)).collect();
        let kind = |value: GgufValue| match value {
            GgufValue::Int32(number) => u64::try_from(number).ok().and_then(PieceKind::from_number),
            _ => None,
        };
        let mut kinds: Vec<PieceKind> = array(keys, "token_type")
            .map(|value| kind(value).unwrap_or(PieceKind::Normal))
            .take(tokens.len())
            .collect();
        kinds.resize(tokens.len(), PieceKind::Normal);
        Self { keys, tokens, kinds }
    }

    fn text(&self, key: &str) -> Option<String> {
        Some(self.keys.get(&format!("tokenizer.ggml.{key}"))?.text()?.into_owned())
    }

    fn flag(&self, key: &str) -> Option<bool> {
        match self.keys.get(&format!("tokenizer.ggml.{key}"))? {
            GgufValue::Bool(is_set) => Some(*is_set),
            _ => None,
        }
    }

    /// Returns the id of a special token, and its text.
    fn special(&self, kind: &str) -> Option<(u32, String)> {
        let GgufValue::UInt32(id) = self.keys.get(&format!("tokenizer.ggml.{kind}_token_id"))? else {
            return None;
        };
        let text = self.tokens.get(*id as usize)?;
        Some((*id, std::str::from_utf8(text).ok()?.to_owned()))
    }

    fn row(&self) -> Option<&'static PreTokenizerRow> {
        let pre = self.text("pre").unwrap_or_default();
        PreTokenizerRow::find(&pre)
    }

    /// Returns true for the beginning and the end if they are added to a text.
    fn added_ends(&self) -> [bool; 2] {
        let begins = match self.text("model").as_deref() {
            Some("llama" | "gemma4") => true,
            _ => self.row().is_some_and(|row| row.adds_begin),
        };
        [self.flag("add_bos_token").unwrap_or(begins), self.flag("add_eos_token").unwrap_or_default()]
    }

    /// Tokens that are found before the model sees a text: their ids, texts, and whether they are special.
    fn added(&self) -> impl Iterator<Item = (usize, &str, bool)> {
        self.tokens.iter().zip(&self.kinds).enumerate().filter_map(|(id, (text, kind))| {
            let is_special = *kind == PieceKind::Control || *kind == PieceKind::Unknown;
            let is_added = is_special || *kind == PieceKind::UserDefined;
            is_added.then_some((id, std::str::from_utf8(text).ok()?, is_special))
        })
    }

    /// Returns the contents of `tokenizer_config.json`.
    fn settings(&self) -> Value {
        let mut settings = Map::new();
        for (kind, key) in [("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")] {
            if let Some((_, text)) = self.special(key) {
                settings.insert(format!("{kind}_token"), text.into());
            }
        }
        let [begins, ends] = self.added_ends();
        settings.insert("add_bos_token".to_owned(), begins.into());
        settings.insert("add_eos_token".to_owned(), ends.into());
        let added = self.added().map(|(id, text, is_special)| {
            (id.to_string(), json!({"content": text, "special": is_special, "normalized": false}))
        });
        settings.insert("added_tokens_decoder".to_owned(), added.collect());
        if self.text("model").as_deref() == Some("gemma4") {
            let named: Vec<&Value> = settings.values().collect();
            let special =
                self.added().filter(|(_, _, is_special)| *is_special).map(|(_, text, _)| json!(text));
            let more: Vec<Value> = special.filter(|text| !named.contains(&text)).collect();
            settings.insert("additional_special_tokens".to_owned(), more.into());
        }
        let templates = self.keys.iter().filter_map(|(key, value)| {
            let name = key.strip_prefix("tokenizer.chat_template")?;
            let name = if name.is_empty() { "default" } else { name.strip_prefix('.')? };
            Some((name, value.text()?))
        });
        let mut templates: Vec<_> = templates.collect();
        let template = match templates.as_mut_slice() {
            [] => None,
            [("default", only)] => Some(json!(only)),
            all => Some(all.iter().map(|(name, text)| json!({"name": name, "template": text})).collect()),
        };
        settings.extend(template.map(|template| ("chat_template".to_owned(), template)));
        let class = if self.text("model").as_deref() == Some("llama") {
            "LlamaTokenizer"
        } else {
            "PreTrainedTokenizerFast"
        };
        settings.insert("tokenizer_class".to_owned(), class.into());
        Value::Object(settings)
    }

    /// Returns the contents of `generation_config.json`: the tokens that end a text.
    fn generation(&self) -> Value {
        let sampling = SAMPLING.iter().filter_map(|(key, names)| {
            let value = json_of(self.keys.get(&format!("general.sampling.{key}"))?)?;
            Some(((*names.last()?).to_owned(), value))
        });
        let mut config: Map<String, Value> = sampling.collect();
        let mut stops: Vec<u32> = Vec::new();
        for (id, _) in ["eos", "eot", "eom"].iter().filter_map(|kind| self.special(kind)) {
            if !stops.contains(&id) {
                stops.push(id);
            }
        }
        config.extend(self.special("bos").map(|(id, _)| ("bos_token_id".to_owned(), id.into())));
        match stops.as_slice() {
            [] => {}
            [only] => drop(config.insert("eos_token_id".to_owned(), (*only).into())),
            all => drop(config.insert("eos_token_id".to_owned(), all.into())),
        }
        Value::Object(config)
    }

    /// Returns the name and the contents of the tokenizer's file, or why there is none.
    fn tokenizer(&self) -> Result<(&'static str, Vec<u8>), String> {
        match self.tokens.len() {
            0 => return Err("it has no vocabulary".to_owned()),
            1..=TOKENS_MAX => {}
            _ => return Err(format!("it has more than {TOKENS_MAX} tokens")),
        }
        match self.text("model").as_deref() {
            Some("llama") => Ok(("tokenizer.model", self.pieces().to_bytes())),
            Some("gpt2") => {
                let pre = self.text("pre").unwrap_or_default();
                let row = self.row().ok_or_else(|| format!("it is not known how {pre} splits a text"))?;
                Ok(("tokenizer.json", self.json(row)?.to_string().into_bytes()))
            }
            Some("gemma4") => Ok(("tokenizer.json", self.fallback_json()?.to_string().into_bytes())),
            kind => Err(format!("a tokenizer {:?} is not read", kind.unwrap_or_default())),
        }
    }

    fn pieces(&self) -> PieceModel {
        let scores = array(self.keys, "scores").map(|score| match score {
            GgufValue::Float32(score) => score,
            _ => 0.0,
        });
        let scores = scores.chain(std::iter::repeat(0.0));
        let pieces = self.tokens.iter().zip(&self.kinds).zip(scores);
        let mut pieces: Vec<Piece> =
            pieces.map(|((text, kind), score)| Piece::new(text.clone(), score, *kind)).collect();
        // The converter fills up the vocabulary.
        while let Some((last, id)) = pieces.last().zip(pieces.len().checked_sub(1))
            && last.kind == PieceKind::Unused
            && last.text == format!("[PAD{id}]")
        {
            pieces.pop();
        }
        let unknown = self.special("unknown").map_or(0, |(id, _)| id as usize);
        if pieces.iter().all(|piece| piece.kind != PieceKind::Unknown)
            && let Some(piece) = pieces.get_mut(unknown)
        {
            piece.kind = PieceKind::Unknown;
        }
        let mut model = PieceModel::new(Algorithm::Bpe, pieces);
        model.has_byte_fallback = self.kinds.iter().filter(|kind| **kind == PieceKind::Byte).count() == 256;
        model.normalization.adds_dummy_prefix = self.flag("add_space_prefix").unwrap_or(true);
        model.normalization.removes_extra_spaces = false;
        for (end, kind) in model.ends.iter_mut().zip(["bos", "eos"]) {
            if let Some((_, text)) = self.special(kind) {
                *end = text.into();
            }
        }
        model
    }

    fn json(&self, row: &PreTokenizerRow) -> Result<Value, String> {
        self.json_of(&Form {
            normalizer: if row.composes { json!({"type": "NFC"}) } else { Value::Null },
            pre_tokenizer: row.split_json(),
            decoder: byte_level(true),
            unknown: None,
            falls_back: false,
            ignores_merges: row.ignores_merges,
        })
    }

    /// Returns a tokenizer as `GemmaTokenizer` of `transformers` makes it, which merges characters, and not bytes.
    fn fallback_json(&self) -> Result<Value, String> {
        let replace =
            |from: &str, to: &str| json!({"type": "Replace", "pattern": {"String": from}, "content": to});
        let decoders = [replace("\u{2581}", " "), json!({"type": "ByteFallback"}), json!({"type": "Fuse"})];
        self.json_of(&Form {
            normalizer: replace(" ", "\u{2581}"),
            pre_tokenizer: json!({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false}),
            decoder: json!({"type": "Sequence", "decoders": decoders}),
            unknown: self.special("unknown").map(|(_, text)| text),
            falls_back: true,
            ignores_merges: false,
        })
    }

    fn json_of(&self, form: &Form) -> Result<Value, String> {
        // Tokens that were added to the vocabulary follow it.
        let is_added = |kind: &PieceKind| form.falls_back && *kind == PieceKind::UserDefined;
        let last = self.kinds.iter().rposition(|kind| !is_added(kind));
        let mut vocabulary = Map::new();
        for (id, (token, _)) in self
            .tokens
            .iter()
            .zip(&self.kinds)
            .enumerate()
            .filter(|(id, (_, kind))| **kind != PieceKind::Unused && Some(*id) <= last)
        {
            let text = std::str::from_utf8(token).map_err(|_| format!("token {id} is not UTF-8"))?;
            vocabulary.insert(text.to_owned(), id.into());
        }
        let merges =
            array(self.keys, "merges").filter_map(|merge| Some(Value::from(merge.text()?.into_owned())));
        let merges: Vec<Value> = merges.take(MERGES_MAX.saturating_add(1)).collect();
        if merges.len() > MERGES_MAX {
            return Err(format!("it has more than {MERGES_MAX} merges"));
        }
        let added = self.added().map(|(id, text, is_special)| {
            json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": is_special})
        });
        let added: Vec<Value> = added.collect();
        Ok(json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": form.normalizer,
            "pre_tokenizer": form.pre_tokenizer, "post_processor": self.ends(), "decoder": form.decoder,
            "model": {
                "type": "BPE", "dropout": null, "unk_token": form.unknown, "continuing_subword_prefix": null, "end_of_word_suffix": null,
                "fuse_unk": form.falls_back, "byte_fallback": form.falls_back, "ignore_merges": form.ignores_merges,
                "vocab": vocabulary, "merges": merges
            }
        }))
    }

    /// Returns the post-processor, which adds the tokens at the ends.
    fn ends(&self) -> Value {
        let [begins, ends] = self.added_ends();
        let special = |is_added: bool, kind: &str| self.special(kind).filter(|_| is_added);
        let (begin, end) = (special(begins, "bos"), special(ends, "eos"));
        if begin.is_none() && end.is_none() {
            return Value::Null;
        }
        let part = |(_, text): &(u32, String)| json!({"SpecialToken": {"id": text, "type_id": 0}});
        let text = json!({"Sequence": {"id": "A", "type_id": 0}});
        let single: Vec<Value> =
            begin.iter().map(part).chain([text.clone()]).chain(end.iter().map(part)).collect();
        let tokens: Map<String, Value> = begin
            .iter()
            .chain(&end)
            .map(|(id, text)| (text.clone(), json!({"id": text, "ids": [id], "tokens": [text]})))
            .collect();
        json!({"type": "TemplateProcessing", "single": single, "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": tokens})
    }
}

fn array<'k>(keys: &'k GgufKeys, name: &str) -> impl Iterator<Item = GgufValue> + 'k {
    let value = keys.get(&format!("tokenizer.ggml.{name}"));
    let array = value.and_then(|value| match value {
        GgufValue::Array(array) => Some(array.iter()),
        _ => None,
    });
    array.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use gguf_format::GgufArray;

    use super::*;

    fn text(text: &str) -> GgufValue {
        GgufValue::Text(Bytes::copy_from_slice(text.as_bytes()))
    }

    fn texts(texts: &[&str]) -> GgufValue {
        GgufValue::Array(GgufArray::from_texts(texts))
    }

    fn keys(rows: &[(&str, GgufValue)]) -> GgufKeys {
        rows.iter().map(|(key, value)| (format!("tokenizer.{key}"), value.clone())).collect()
    }

    fn document(found: &KeyDocuments, name: &str) -> Option<Vec<u8>> {
        found.documents.iter().find(|(known, _)| known == name).map(|(_, contents)| contents.clone())
    }

    fn json(found: &KeyDocuments, name: &str) -> Value {
        serde_json::from_slice(&document(found, name).expect("a document")).expect("JSON")
    }

    #[test]
    fn merges_and_templates_become_documents() {
        let rows = [
            ("ggml.model", text("gpt2")),
            ("ggml.pre", text("llama-bpe")),
            ("ggml.tokens", texts(&["a", "b", "ab", "<s>", "[PAD4]"])),
            ("ggml.token_type", GgufValue::Array(GgufArray::from_int32([1, 1, 1, 3, 5]))),
            ("ggml.merges", texts(&["a b"])),
            ("ggml.bos_token_id", GgufValue::UInt32(3)),
            ("ggml.eot_token_id", GgufValue::UInt32(2)),
            ("chat_template", text("x")),
            ("chat_template.tool_use", text("y")),
        ];
        let found = key_documents(&keys(&rows));
        assert_eq!(found.reason, None);
        let tokenizer = json(&found, "tokenizer.json");
        assert_eq!(tokenizer["model"]["vocab"], json!({"a": 0, "b": 1, "ab": 2, "<s>": 3}));
        assert_eq!(tokenizer["model"]["merges"], json!(["a b"]));
        assert_eq!(tokenizer["post_processor"]["special_tokens"]["<s>"]["ids"], json!([3]));
        assert_eq!(json(&found, "generation_config.json"), json!({"bos_token_id": 3, "eos_token_id": 2}));
        let templates = &json(&found, "tokenizer_config.json")["chat_template"];
        assert_eq!(templates[1], json!({"name": "tool_use", "template": "y"}));
        let mut other = rows.clone();
        other[1].1 = text("nonsense");
        let found = key_documents(&keys(&other));
        assert_eq!(found.reason.as_deref(), Some("it is not known how nonsense splits a text"));
        assert!(document(&found, "tokenizer.json").is_none());
        assert_eq!(key_documents(&GgufKeys::new()).reason.as_deref(), Some("it has no vocabulary"));
    }

    #[test]
    fn pieces_become_a_model() {
        let rows = [
            ("ggml.model", text("llama")),
            ("ggml.tokens", texts(&["<unk>", "<s>", "a", "[PAD3]"])),
            ("ggml.token_type", GgufValue::Array(GgufArray::from_int32([2, 3, 1, 5]))),
            ("ggml.scores", GgufValue::Array(GgufArray::from_float32([0.0, 0.0, -1.5]))),
            ("ggml.add_space_prefix", GgufValue::Bool(false)),
        ];
        let model = document(&key_documents(&keys(&rows)), "tokenizer.model").expect("a model");
        let model = PieceModel::from_bytes(&model.into()).expect("a model");
        assert_eq!((model.pieces.len(), model.algorithm), (3, Algorithm::Bpe));
        assert_eq!(model.pieces.last(), Some(&Piece::new("a", -1.5, PieceKind::Normal)));
        assert!(!model.normalization.adds_dummy_prefix && !model.has_byte_fallback);
    }
}
