//! Keys of a tokenizer, in the order in which llama.cpp's converter writes them for each architecture.
//!
//! Facts: `set_vocab` of its classes, and the functions that these call.

mod added;
mod pre_tokenizer;
mod rebuilt;
mod special;
mod splits;
mod tokenizer_json;

use std::collections::{HashMap, HashSet};
use std::fmt::Display;

use byte_source::Result;
use bytes::Bytes;
use gguf_format::{GgufArray, GgufValue};
use sentencepiece_format::{Piece, PieceKind, PieceModel};
use serde_json::{Map, Value};

pub use pre_tokenizer::{EncodeText, pre_tokenizers};
pub use rebuilt::{KeyDocuments, key_documents};

use crate::architecture::TokenizerRule;
use crate::config::GgufConfig;
use crate::keys::Keys;
use crate::{Documents, Problem};
use added::{NamedToken, listed_tokens, named_tokens, special_texts, with_tokens_of_class};
use special::Special;
use tokenizer_json::{AddedToken, TokenizerJson};

/// Score of tokens that were added, and of padding.
const ADDED_SCORE: f32 = -1000.0;
const PADDING_SCORE: f32 = -10_000.0;
/// Tokens that end a turn of `CodeLlama` and of Gemma.
const CODE_LLAMA_TURN: u32 = 32010;
const GEMMA_TURN: u32 = 107;
const TURN_KEY: &str = "tokenizer.ggml.eot_token_id";
/// Texts of special tokens, which count if no document gives another.
const GLM_TOKENS: &[(&str, &str)] =
    &[("eos", "<|endoftext|>"), ("eot", "<|user|>"), ("unk", "<|endoftext|>")];
const GLM4_TOKENS: &[(&str, &str)] =
    &[("eos", "<|endoftext|>"), ("eot", "<|user|>"), ("unk", "<|endoftext|>"), ("bos", "<|endoftext|>")];
const GLM4_MOE_TOKENS: &[(&str, &str)] =
    &[("bos", "[gMASK]"), ("eot", "<|user|>"), ("unk", "<|endoftext|>"), ("eom", "<|observation|>")];

/// Control tokens of Gemma 4 that llama.cpp shows, because they are around what its parser of chats reads.
const GEMMA4_SHOWN: [&str; 7] = [
    "<|channel>",
    "<channel|>",
    "<|tool_call>",
    "<tool_call|>",
    "<|tool_response>",
    "<tool_response|>",
    "<|\"|>",
];

pub(crate) fn damaged(file: &str, reason: impl Display) -> byte_source::Error {
    Problem::Tokenizer { file: file.to_owned(), reason: reason.to_string() }.into()
}

/// Name of the pre-tokenizer.
pub enum PreTokenizer<'p> {
    /// By the tokens of a text.
    Encode(&'p EncodeText<'p>),
    /// By a name of llama.cpp.
    Named(&'p str),
}

/// Returns the number of tokens of tokenizer.json, if the tokenizer is that file.
///
/// # Errors
/// When it is damaged.
pub(crate) fn json_tokens(documents: &Documents<'_>) -> Result<Option<u64>> {
    if documents.bytes("tokenizer.model")?.is_some() {
        return Ok(None);
    }
    let Some(bytes) = documents.bytes("tokenizer.json")? else { return Ok(None) };
    let tokenizer = TokenizerJson::from_bytes(&bytes)?;
    Ok(Some(tokenizer.model.vocab.0.len().saturating_add(tokenizer.added_tokens.len()) as u64))
}

/// Sets the keys of the tokenizer.
///
/// # Errors
/// When there is no tokenizer that is read, it is damaged, or llama.cpp does not know its pre-tokenizer.
pub(crate) fn set_keys(
    keys: &mut Keys,
    config: &GgufConfig,
    documents: &Documents<'_>,
    pre: &PreTokenizer<'_>,
) -> Result<()> {
    let mut tokenizer = Tokenizer { keys, config, documents, pre, settings: Map::new() };
    tokenizer.settings = documents.object("tokenizer_config.json")?.unwrap_or_default();
    match config.architecture.tokenizer {
        TokenizerRule::Llama => tokenizer.llama(),
        TokenizerRule::Either => tokenizer.either().map(drop),
        TokenizerRule::Json => tokenizer.json(&[]),
        TokenizerRule::Ernie => {
            tokenizer.pieces(false)?;
            tokenizer.space_prefix();
            Ok(())
        }
        TokenizerRule::Glm => {
            tokenizer.keys.flag("tokenizer.ggml.add_bos_token", false);
            tokenizer.json(GLM_TOKENS)
        }
        TokenizerRule::Glm4 => tokenizer.json(GLM4_TOKENS),
        TokenizerRule::Glm4Moe => tokenizer.json(GLM4_MOE_TOKENS),
        TokenizerRule::Hunyuan => tokenizer.hunyuan(),
        TokenizerRule::Gemma => tokenizer.gemma(),
        TokenizerRule::Gemma2 => {
            tokenizer.pieces(false)?;
            tokenizer.keys.flag("tokenizer.ggml.add_space_prefix", false);
            Ok(())
        }
        TokenizerRule::Gemma3 => {
            if tokenizer.either()? {
                tokenizer.keys.flag("tokenizer.ggml.add_space_prefix", false);
            }
            Ok(())
        }
        TokenizerRule::Gemma4 => tokenizer.gemma4(),
        TokenizerRule::Phi3 => match tokenizer.settings.get("tokenizer_class").and_then(Value::as_str) {
            Some("GPT2Tokenizer") => tokenizer.json(&[]),
            _ => tokenizer.pieces(true),
        },
    }
}

struct Tokenizer<'t, 'd> {
    keys: &'t mut Keys,
    config: &'t GgufConfig,
    documents: &'t Documents<'d>,
    pre: &'t PreTokenizer<'t>,
    /// Contents of `tokenizer_config.json`.
    settings: Map<String, Value>,
}

impl Tokenizer<'_, '_> {
    fn space_prefix(&mut self) {
        if let Some(is_added) = self.settings.get("add_prefix_space").and_then(Value::as_bool) {
            self.keys.flag("tokenizer.ggml.add_space_prefix", is_added);
        }
    }

    fn llama(&mut self) -> Result<()> {
        self.space_prefix();
        if self.documents.bytes("tokenizer.model")?.is_some() {
            self.pieces(false)?;
        } else {
            let (bytes, tokenizer) = self.read_json()?;
            if tokenizer.falls_back_to_bytes() {
                let tokens = self.fallback_tokens(&tokenizer)?;
                self.finish_pieces(&tokens, Some(&tokenizer))?;
            } else {
                self.byte_level(&bytes, tokenizer, &[])?;
            }
        }
        match self.config.vocabulary()? {
            32016 => self.keys.number(TURN_KEY, CODE_LLAMA_TURN),
            49152 => self.keys.flag("tokenizer.ggml.add_bos_token", false),
            _ => {}
        }
        Ok(())
    }

    /// Returns true if it is tokenizer.model.
    fn either(&mut self) -> Result<bool> {
        let has_pieces = self.documents.bytes("tokenizer.model")?.is_some();
        if has_pieces {
            self.pieces(false)?;
        } else {
            self.json(&[])?;
        }
        Ok(has_pieces)
    }

    fn gemma(&mut self) -> Result<()> {
        self.pieces(false)?;
        self.keys.number(TURN_KEY, GEMMA_TURN);
        self.keys.flag("tokenizer.ggml.add_space_prefix", false);
        Ok(())
    }

    fn gemma4(&mut self) -> Result<()> {
        let (_, mut tokenizer) = self.read_json()?;
        if !tokenizer.falls_back_to_bytes() {
            return Err(damaged(
                "tokenizer.json",
                "expected BPE with `byte_fallback` and a decoder of several",
            ));
        }
        let mut tokens = self.fallback_tokens(&tokenizer)?;
        for token in &mut tokens.0 {
            if GEMMA4_SHOWN.iter().any(|shown| token.text == *shown) {
                token.kind = PieceKind::UserDefined;
            }
        }
        self.keys.text("tokenizer.ggml.model", "gemma4");
        tokens.set_keys(self.keys, true);
        self.keys.texts("tokenizer.ggml.merges", self.merges(&mut tokenizer)?);
        Special::read(self.documents, Some(&tokenizer), None)?.set_keys(self.keys);
        self.keys.flag("tokenizer.ggml.add_space_prefix", false);
        self.keys.flag("tokenizer.ggml.add_bos_token", true);
        Ok(())
    }

    /// Sets the keys of tokenizer.json, in which `more` special tokens have these texts.
    fn json(&mut self, more: &[(&'static str, &str)]) -> Result<()> {
        let (bytes, tokenizer) = self.read_json()?;
        self.byte_level(&bytes, tokenizer, more)
    }

    fn hunyuan(&mut self) -> Result<()> {
        self.json(&[])?;
        if let Some(end) = self.config.get("eod_token_id") {
            self.keys.number_of("tokenizer.ggml.eos_token_id", ("eod_token_id", end))?;
        }
        let generation = self.documents.object("generation_config.json")?.unwrap_or_default();
        if let Some([end, _, ..]) =
            generation.get("eos_token_id").and_then(Value::as_array).map(Vec::as_slice)
        {
            self.keys.number_of(TURN_KEY, ("eos_token_id", end))?;
        }
        Ok(())
    }

    fn read_json(&self) -> Result<(Bytes, TokenizerJson)> {
        let expected = "tokenizer.json";
        let bytes = self.documents.bytes(expected)?.ok_or(Problem::NoTokenizer { expected })?;
        let tokenizer = TokenizerJson::from_bytes(&bytes)?;
        Ok((bytes, tokenizer))
    }

    /// Sets the keys of a vocabulary of bytes as characters, with merges.
    fn byte_level(
        &mut self,
        bytes: &Bytes,
        mut tokenizer: TokenizerJson,
        more: &[(&'static str, &str)],
    ) -> Result<()> {
        let kind = &tokenizer.model.kind;
        if !["", "BPE"].contains(&kind.as_str()) {
            return Err(damaged("tokenizer.json", format_args!("its model is {kind:?}, expected BPE")));
        }
        let name = match self.pre {
            PreTokenizer::Named(name) => pre_tokenizer::given(name)?,
            PreTokenizer::Encode(encode) => {
                let tokens = encode(bytes, pre_tokenizer::TEXT)?;
                pre_tokenizer::name_of(&tokens, tokenizer.pre_tokenizer.as_ref())?
            }
        };
        let mut special = Special::read(self.documents, Some(&tokenizer), None)?;
        for (kind, text) in more {
            let added = tokenizer.added_tokens.iter().find(|added| added.content == *text);
            let missing = || damaged("tokenizer.json", format_args!("it lacks the added token `{text}`"));
            special.set(kind, Some(added.ok_or_else(missing)?.id));
        }
        let mut tokens = Tokens::padded(self.config.vocabulary()?);
        let settings = with_tokens_of_class(&self.settings, self.config, true);
        let named = named_tokens(&settings, self.documents, &tokenizer.added_tokens)?;
        let mut ids: HashMap<&str, KnownToken> =
            named.iter().map(|token| (token.text.as_str(), KnownToken::default())).collect();
        let mut next = tokenizer.model.vocab.0.len() as u64;
        for (text, id) in std::mem::take(&mut tokenizer.model.vocab.0) {
            if let Some(known) = ids.get_mut(text.as_str()) {
                known.id = Some(id);
            }
            tokens.place(id, text.into(), 0.0, PieceKind::Normal)?;
        }
        for added in &tokenizer.added_tokens {
            if let Some(known) = ids.get_mut(added.content.as_str()) {
                *known = KnownToken { id: Some(added.id), is_added: true };
            }
            next = next.max(added.id.saturating_add(1));
            tokens.add(added.id, &added.content, added.special || looks_special(&added.content))?;
        }
        for NamedToken { text, is_special, is_only_new } in &named {
            let known = ids.entry(text).or_default();
            let id = known.id.unwrap_or(next);
            // The model has no embedding for one beyond the vocabulary.
            let is_free =
                tokens.get_mut(id).is_some_and(|token| known.id.is_some() || token.kind == PieceKind::Unused);
            if is_free && !(known.is_added && *is_only_new) {
                tokens.add(id, text, *is_special || looks_special(text))?;
            }
            *known = KnownToken { id: Some(id), is_added: true };
            next = next.max(id.saturating_add(1));
        }
        self.keys.text("tokenizer.ggml.model", "gpt2");
        self.keys.text("tokenizer.ggml.pre", name);
        tokens.set_keys(self.keys, false);
        self.keys.texts("tokenizer.ggml.merges", self.merges(&mut tokenizer)?);
        special.set_keys(self.keys);
        Ok(())
    }

    /// Returns the merges of tokenizer.json, else those of merges.txt.
    fn merges(&self, tokenizer: &mut TokenizerJson) -> Result<Vec<String>> {
        let merges = std::mem::take(&mut tokenizer.model.merges.0);
        if !merges.is_empty() {
            return Ok(merges);
        }
        let text = self.documents.text("merges.txt")?.unwrap_or_default();
        let has_head = text.starts_with('#');
        let lines = text.lines().skip(has_head.into());
        let pairs = lines.filter_map(|line| {
            let mut words = line.split_whitespace();
            match (words.next(), words.next(), words.next()) {
                (Some(left), Some(right), None) => Some(format!("{left} {right}")),
                _ => None,
            }
        });
        Ok(pairs.collect())
    }

    /// Returns the tokens of a vocabulary that was a `SentencePiece` model, whose scores are lost.
    fn fallback_tokens(&self, tokenizer: &TokenizerJson) -> Result<Tokens> {
        let base = &tokenizer.model.vocab.0;
        let settings = with_tokens_of_class(&self.settings, self.config, false);
        let special = special_texts(&settings, self.documents)?;
        let last =
            base.iter().map(|(_, id)| *id).chain(tokenizer.added_tokens.iter().map(|added| added.id)).max();
        let count = usize::try_from(last.map_or(0, |last| last.saturating_add(1))).unwrap_or(usize::MAX);
        if count > base.len().saturating_add(tokenizer.added_tokens.len()) {
            return Err(damaged("tokenizer.json", "ids of tokens are left out"));
        }
        let mut tokens = Tokens::padded(count);
        for (text, id) in base {
            let is_byte = text.len() == 6
                && text
                    .strip_prefix("<0x")
                    .and_then(|rest| rest.strip_suffix('>'))
                    .is_some_and(|hex| hex.chars().all(|c| c.is_ascii_hexdigit()));
            let kind = if is_byte {
                PieceKind::Byte
            } else if special.contains(text) {
                PieceKind::Control
            } else {
                PieceKind::Normal
            };
            tokens.place(*id, text.clone().into(), ADDED_SCORE, kind)?;
        }
        for added in &tokenizer.added_tokens {
            if tokens.is_padding(added.id) {
                let kind = added_kind(&added.content, &special);
                tokens.place(added.id, added.content.clone().into(), ADDED_SCORE, kind)?;
            }
        }
        let added = tokenizer.added_tokens.iter().map(|added| added.content.as_str());
        let mut known: HashSet<&str> = base.iter().map(|(text, _)| text.as_str()).chain(added).collect();
        let named = named_tokens(&settings, self.documents, &tokenizer.added_tokens)?;
        for NamedToken { text, .. } in named.iter().filter(|token| known.insert(&token.text)) {
            tokens.0.push(Piece::new(text.clone(), ADDED_SCORE, added_kind(text, &special)));
        }
        Ok(tokens)
    }

    /// Sets the keys of a `SentencePiece` model. With `adds_json`, the added tokens of tokenizer.json replace its own.
    fn pieces(&mut self, adds_json: bool) -> Result<()> {
        let expected = "tokenizer.model";
        let file = self.documents.bytes(expected)?.ok_or(Problem::NoTokenizer { expected })?;
        let mut tokens = Tokens::padded(self.config.vocabulary()?);
        let model = PieceModel::from_bytes(&file).map_err(|error| damaged(expected, error))?;
        for (token, mut piece) in tokens.0.iter_mut().zip(model.pieces) {
            // What a user defined is like any other piece.
            if piece.kind == PieceKind::UserDefined {
                piece.kind = PieceKind::Normal;
            }
            *token = piece;
        }
        for (text, id) in self.documents.object("added_tokens.json")?.unwrap_or_default() {
            if let Some(id) = id.as_u64() {
                tokens.put(id, text.into(), PieceKind::UserDefined);
            }
        }
        // Phi-3's tokens are kept as they are.
        tokens.add_listed(&self.settings, !adds_json)?;
        let json = self.documents.bytes("tokenizer.json")?;
        let json = json.map(|bytes| TokenizerJson::from_bytes(&bytes)).transpose()?;
        if let Some(tokenizer) = json.as_ref().filter(|_| adds_json) {
            for added in &tokenizer.added_tokens {
                let kind = if added.special { PieceKind::Control } else { PieceKind::UserDefined };
                tokens.put(added.id, added.content.clone().into(), kind);
            }
        }
        self.finish_pieces(&tokens, json.as_ref())
    }

    fn finish_pieces(&mut self, tokens: &Tokens, tokenizer: Option<&TokenizerJson>) -> Result<()> {
        self.keys.text("tokenizer.ggml.model", "llama");
        self.keys.text("tokenizer.ggml.pre", "default");
        tokens.set_keys(self.keys, true);
        Special::read(self.documents, tokenizer, Some(tokens.0.len()))?.set_keys(self.keys);
        Ok(())
    }
}

/// What is known of a text that a document names as a token.
#[derive(Clone, Copy, Default)]
struct KnownToken {
    id: Option<u64>,
    is_added: bool,
}

/// Tokens by their ids.
struct Tokens(Vec<Piece>);

impl Tokens {
    /// Creates tokens that are not used.
    fn padded(count: usize) -> Self {
        let padding = |id| Piece::new(format!("[PAD{id}]"), PADDING_SCORE, PieceKind::Unused);
        Self((0..count).map(padding).collect())
    }

    fn get_mut(&mut self, id: u64) -> Option<&mut Piece> {
        self.0.get_mut(usize::try_from(id).ok()?)
    }

    fn is_padding(&mut self, id: u64) -> bool {
        self.get_mut(id).is_some_and(|token| token.kind == PieceKind::Unused && token.score == PADDING_SCORE)
    }

    /// Sets a token.
    ///
    /// # Errors
    /// When the vocabulary is smaller.
    fn place(&mut self, id: u64, text: Bytes, score: f32, kind: PieceKind) -> Result<()> {
        let count = self.0.len();
        let token = self.get_mut(id).ok_or_else(|| {
            damaged(
                "tokenizer.json",
                format_args!("a token has the id {id}, and config.json says vocab_size is {count}"),
            )
        })?;
        *token = Piece::new(text, score, kind);
        Ok(())
    }

    /// Sets a token that was added; one beyond the vocabulary is left out.
    fn put(&mut self, id: u64, text: Bytes, kind: PieceKind) {
        if let Some(token) = self.get_mut(id) {
            *token = Piece::new(text, ADDED_SCORE, kind);
        }
    }

    /// Sets an added token. In all but control tokens, U+2581 becomes a space.
    fn add(&mut self, id: u64, text: &str, is_control: bool) -> Result<()> {
        let kind = if is_control { PieceKind::Control } else { PieceKind::UserDefined };
        let text = if is_control { text.to_owned() } else { text.replace('\u{2581}', " ") };
        self.place(id, text.into(), ADDED_SCORE, kind)
    }

    /// Sets the tokens that `tokenizer_config.json` lists. If they are not normalized, their texts are kept.
    fn add_listed(&mut self, settings: &Map<String, Value>, is_normalized: bool) -> Result<()> {
        for AddedToken { id, content, special } in listed_tokens(settings)? {
            if self.get_mut(id).is_some() && is_normalized {
                self.add(id, &content, special || looks_special(&content))?;
            } else {
                let kind = if special { PieceKind::Control } else { PieceKind::UserDefined };
                self.put(id, content.into(), kind);
            }
        }
        Ok(())
    }

    fn set_keys(&self, keys: &mut Keys, has_scores: bool) {
        keys.texts("tokenizer.ggml.tokens", self.0.iter().map(|token| &token.text));
        if has_scores {
            let scores = GgufArray::from_float32(self.0.iter().map(|token| token.score));
            keys.set("tokenizer.ggml.scores", GgufValue::Array(scores));
        }
        let kinds = GgufArray::from_int32(self.0.iter().map(|token| token.kind as i32));
        keys.set("tokenizer.ggml.token_type", GgufValue::Array(kinds));
    }
}

fn added_kind(text: &str, special: &HashSet<String>) -> PieceKind {
    if special.contains(text) { PieceKind::Control } else { PieceKind::UserDefined }
}

/// Returns true for a text that is a control token, whatever the document says.
fn looks_special(text: &str) -> bool {
    let is_between = |start, end| text.starts_with(start) && text.ends_with(end);
    ["<pad>", "<mask>", "<2mass>", "[@BOS@]"].contains(&text)
        || is_between("<|", "|>")
        || is_between("<｜", "｜>")
        || is_between("<unused", ">")
}
