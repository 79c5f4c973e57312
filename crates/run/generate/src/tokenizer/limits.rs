//! Bounds on the expansion of a text by a tokenizer, computed before the tokenizer is built.
//!
//! Facts: the components of `tokenizers` 0.23. A list of sixty components that each double a text expands one character to
//! terabytes, and the failing allocation ends the program. A `Unigram` vocabulary becomes a tree that is as deep as its
//! longest token and is freed by recursion.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::guard::{as_file_error, catch_panics};
use super::pattern::{self, Patterns};
use super::work::{self, ModelWork};
use crate::{Error, Result};

/// Maximum size of a text at any stage, in bytes. For each byte, `tokenizers` keeps about twenty more.
const TEXT_MAX: u64 = 64 << 20;
/// Length of a text, in bytes, that every tokenizer must be able to encode: one that makes a text more than 16,384 times as
/// long is refused when it is read.
const SHORT_TEXT: u64 = 4096;
/// Maximum length of a token, in bytes. The longest real tokens have some hundred.
const TOKEN_MAX: usize = 4096;

/// Bounds on the expansion of a text when a tokenizer encodes or decodes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExpansionLimits {
    encoded: u64,
    decoded: u64,
    /// Length of the longest token, in bytes.
    longest: u64,
    /// Sizes that determine the work of the model.
    pub(super) work: ModelWork,
    /// True if adjacent byte tokens are decoded together.
    pub(super) joins_bytes: bool,
}

impl ExpansionLimits {
    /// Returns the bounds for Llama 3's format: each byte becomes a character of up to two bytes, and the reverse.
    pub(super) fn from_tiktoken(file: &str, longest: usize) -> Result<Self> {
        let work = ModelWork::new(file, longest, &[], None)?;
        Ok(Self { encoded: 2, decoded: 2, longest: longest as u64, work, joins_bytes: false })
    }

    pub(super) fn from_json(file: &str, bytes: &[u8]) -> Result<Self> {
        let invalid =
            |error: serde_json::Error| Error::Invalid { file: file.to_owned(), reason: error.to_string() };
        let outline: TokenizerOutline = serde_json::from_slice(bytes).map_err(invalid)?;
        let added = outline.added_tokens.iter().map(|token| token.content.len());
        let longest = added.clone().chain([outline.model.vocab.0]).max().unwrap_or(0);
        if longest > TOKEN_MAX {
            return Err(Error::LongToken { file: file.to_owned(), found: longest, limit: TOKEN_MAX });
        }
        let normalizers = work::check_components(file, "normalizer", &outline.normalizer)?;
        let others = [
            ("pre_tokenizer", &outline.pre_tokenizer),
            ("post_processor", &outline.post_processor),
            ("decoder", &outline.decoder),
        ];
        for (part, root) in others {
            work::check_components(file, part, root)?;
        }
        let [pre_tokenizer, post_processor, decoder] = others;
        Patterns::check(
            file,
            &[("normalizer", &outline.normalizer), pre_tokenizer, post_processor, decoder],
        )?;
        work::check_added(file, outline.added_tokens.len(), normalizers)?;
        let model = &outline.model;
        let affixes = [&model.continuing_subword_prefix, &model.end_of_word_suffix];
        let affixes = affixes.map(|text| text.as_deref().unwrap_or_default());
        let normalized = expansion_factor(&outline.normalizer);
        let split = normalized.saturating_mul(expansion_factor(&outline.pre_tokenizer));
        let limits = Self {
            encoded: split.saturating_mul(repetition_factor(&outline.post_processor)),
            decoded: expansion_factor(&outline.decoder),
            longest: longest as u64,
            work: ModelWork::new(file, model.vocab.0, &affixes, model.max_input_chars_per_word)?,
            joins_bytes: outline.decoder.to_string().contains("\"ByteFallback\""),
        };
        // Added tokens are normalized as they are registered.
        let added = added.fold(0_u64, |sum, len| sum.saturating_add(len as u64));
        check_expansion(file, added, normalized)?;
        let added = outline.added_tokens.iter().map(|token| token.content.as_str());
        catch_panics(file, || pattern::check_added(file, &outline.normalizer, added))
            .map_err(|error| as_file_error(file, error))??;
        check_expansion(file, SHORT_TEXT, limits.encoded)?;
        limits.check_tokens(file, 1)?;
        Ok(limits)
    }

    pub(super) fn check_text(&self, file: &str, text: &str) -> Result<()> {
        check_expansion(file, text.len() as u64, self.encoded)
    }

    pub(super) fn check_tokens(&self, file: &str, tokens: usize) -> Result<()> {
        check_expansion(file, self.longest.saturating_mul(tokens as u64), self.decoded)
    }
}

fn check_expansion(file: &str, found: u64, growth: u64) -> Result<()> {
    if found.saturating_mul(growth) <= TEXT_MAX {
        return Ok(());
    }
    Err(Error::TextExpansion {
        file: file.to_owned(),
        growth,
        found,
        limit: TEXT_MAX.checked_div(growth).unwrap_or(0),
    })
}

/// Members of `tokenizer.json` that determine the bounds.
#[derive(Deserialize)]
struct TokenizerOutline {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    #[serde(default)]
    added_tokens: Vec<AddedTokenOutline>,
    model: ModelOutline,
}

#[derive(Deserialize)]
struct AddedTokenOutline {
    content: String,
}

#[derive(Deserialize)]
struct ModelOutline {
    #[serde(default)]
    vocab: LongestString,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    max_input_chars_per_word: Option<u64>,
}

/// Returns an upper bound on the factor by which the components below `root` together expand a text.
fn expansion_factor(root: &Value) -> u64 {
    component_product(root, |object| {
        let text = |key: &str| object.get(key).and_then(Value::as_str);
        let kind = text("type").unwrap_or_default();
        if let Some(content) = text("content") {
            let pattern =
                object.get("pattern").and_then(|pattern| pattern.get("String")).and_then(Value::as_str);
            // A regular expression may match between any two characters.
            return match pattern.map(str::len) {
                Some(len) if len > 0 => content.len().div_ceil(len),
                _ => content.len().saturating_add(1),
            };
        }
        if let Some(map) = text("precompiled_charsmap") {
            return longest_replacement(map);
        }
        if let Some(prepend) = text("prepend") {
            return prepend.len().saturating_add(1);
        }
        match kind {
            // U+FDFA has 3 bytes and expands to 33.
            "NFC" | "NFD" | "NFKC" | "NFKD" => 11,
            "Metaspace" => 4,
            "Sequence" | "Strip" | "Fuse" | "ByteFallback" | "Split" | "Digits" | "Whitespace"
            | "WhitespaceSplit" | "Punctuation" | "BertPreTokenizer" | "UnicodeScripts"
            | "CharDelimiterSplit" | "FixedLength" | "StripAccents" | "Nmt" => 1,
            _ => 2,
        }
    })
}

/// Returns an upper bound on the number of times that the components below `root` together repeat the tokens of a text.
fn repetition_factor(root: &Value) -> u64 {
    component_product(root, |object| {
        let list = |key: &str| object.get(key).and_then(Value::as_array).map_or(0, Vec::len);
        list("single").max(list("ids")).max(1)
    })
}

/// Returns the product of `factor` over all objects below `root`, patterns excepted.
fn component_product(root: &Value, factor: impl Fn(&serde_json::Map<String, Value>) -> usize) -> u64 {
    let mut product = 1_u64;
    let mut open = vec![root];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(object) => {
                product = product.saturating_mul(factor(object).max(1) as u64);
                open.extend(object.iter().filter(|(key, _)| *key != "pattern").map(|(_, value)| value));
            }
            _ => {}
        }
    }
    product
}

/// Returns the length in bytes of the longest text that replaces a character. In the map, a table of numbers precedes the
/// texts, and each text ends with a zero.
fn longest_replacement(map: &str) -> usize {
    let Ok(bytes) = STANDARD.decode(map) else { return 1 };
    let Some((table, rest)) = bytes.split_first_chunk::<4>() else { return 1 };
    let table = usize::try_from(u32::from_le_bytes(*table)).unwrap_or(usize::MAX);
    let texts = rest.get(table..).unwrap_or_default();
    texts.split(|byte| *byte == 0).map(<[u8]>::len).max().unwrap_or(0).saturating_add(1)
}

/// Length in bytes of the longest string anywhere in a value. Deserialising keeps no strings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LongestString(usize);

impl<'de> Deserialize<'de> for LongestString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let mut longest = Self(0);
        deserializer.deserialize_any(&mut longest)?;
        Ok(longest)
    }
}

/// Nested values update the same maximum. The parser bounds their depth.
impl<'de> DeserializeSeed<'de> for &mut LongestString {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut LongestString {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a vocabulary")
    }

    fn visit_str<E>(self, text: &str) -> std::result::Result<(), E> {
        self.0 = self.0.max(text.len());
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        while map.next_key_seed(&mut *self)?.is_some() {
            map.next_value_seed(&mut *self)?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<(), A::Error> {
        while items.next_element_seed(&mut *self)?.is_some() {}
        Ok(())
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> std::result::Result<(), D::Error> {
        IgnoredAny::deserialize(deserializer).map(drop)
    }

    fn visit_bool<E>(self, _: bool) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> std::result::Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> std::result::Result<(), E> {
        Ok(())
    }
}
