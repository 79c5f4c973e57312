//! Tokenizers whose files have no special tokens, or none that a text can have: `SentencePiece` models, with the tokens that documents
//! next to them add, and `tekken.json`.
//!
//! Facts: the slow tokenizers of `transformers` 4 and 5.23 (`LlamaTokenizer`, `GemmaTokenizer`, `T5Tokenizer`): a token at the
//! beginning or the end is added as `tokenizer_config.json` says.

use bytes::Bytes;
use sentencepiece_format::{Piece, PieceKind, PieceModel, PieceTokenizer};
use serde_json::Value;

use super::added::{AddedToken, AddedTokens, TextPart};
use super::json::JsonTokenizer;
use super::tekken;
use crate::{Error, ReadModelFile, Result};

#[derive(Debug)]
pub(super) struct ModelTokenizer {
    inner: Inner,
    file: String,
    /// Tokens that any text may have.
    added: AddedTokens,
    /// Those that rendered texts have: also the control pieces and the special tokens of the model.
    rendered: AddedTokens,
    /// Pieces that are added at the beginning and the end of a text.
    ends: [Option<u32>; 2],
}

impl ModelTokenizer {
    /// Reads a model.
    ///
    /// # Errors
    /// When it is damaged or of a kind that is not read.
    pub(super) fn read(file: &str, bytes: &[u8]) -> Result<Self> {
        let added = AddedTokens::new(file, Vec::new())?;
        let (inner, special) = if file == "tekken.json" {
            let (ranks, special) = tekken::read(file, bytes)?;
            (Inner::Ranks(Box::new(ranks)), special)
        } else {
            let model = PieceModel::from_bytes(&Bytes::copy_from_slice(bytes));
            let pieces = model.and_then(PieceTokenizer::new).map_err(|error| as_error(file, &error))?;
            let special = controls(&pieces);
            (Inner::Pieces(Box::new(pieces)), special)
        };
        let rendered = AddedTokens::new(file, special)?;
        let mut read = Self { inner, file: file.to_owned(), added, rendered, ends: [None; 2] };
        let [begin, _] = read.known_ends();
        read.ends = [begin, None];
        Ok(read)
    }

    /// Returns the tokens at the beginning and the end of a text, if there are any.
    fn known_ends(&self) -> [Option<u32>; 2] {
        match &self.inner {
            Inner::Pieces(pieces) => pieces.ends(),
            Inner::Ranks(_) => ["<s>", "</s>"].map(|text| self.rendered.id(text)),
        }
    }

    /// Adds the tokens of the documents next to the model.
    ///
    /// # Errors
    /// Returns those of `read`, and an error if the tokens are too long.
    pub(super) fn add_tokens_of<E: From<Error>>(&mut self, read: &mut ReadModelFile<'_, E>) -> Result<(), E> {
        let mut document = |name: &str| {
            let bytes = read(name)?;
            Ok::<_, E>(bytes.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok()))
        };
        let config = document("tokenizer_config.json")?.unwrap_or_default();
        let mut added = AddedToken::of_config(&config);
        if added.is_empty() {
            added = document("added_tokens.json")?.as_ref().map(AddedToken::of_names).unwrap_or_default();
        }
        let flag = |key: &str, default: bool| config.get(key).and_then(Value::as_bool).unwrap_or(default);
        let is_t5 =
            config.get("tokenizer_class").and_then(Value::as_str).is_some_and(|it| it.starts_with("T5"));
        let wanted = [flag("add_bos_token", true), flag("add_eos_token", is_t5)];
        let [begin, end] = self.known_ends();
        self.ends = [begin.filter(|_| wanted[0]), end.filter(|_| wanted[1])];
        let Inner::Pieces(pieces) = &self.inner else { return Ok(()) };
        let mut rendered = controls(pieces);
        rendered.retain(|control| added.iter().all(|token| token.id != control.id));
        rendered.extend(added.iter().cloned());
        // A text that only looks like a control piece is a text.
        let is_control = |id: u32| {
            pieces
                .piece(id)
                .is_some_and(|piece| matches!(piece.kind, PieceKind::Control | PieceKind::Unknown))
        };
        added.retain(|token| !is_control(token.id));
        self.added = AddedTokens::new(&self.file, added)?;
        self.rendered = AddedTokens::new(&self.file, rendered)?;
        Ok(())
    }

    /// Returns the token at the end of a text, which stops an answer.
    pub(super) fn stop(&self) -> Option<u32> {
        let [_, end] = self.known_ends();
        end
    }

    /// Encodes a text, with the pieces at its ends.
    ///
    /// # Errors
    /// When the text is too long.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let [begin, end] = self.ends;
        let ids = self.encode_parts(&self.added, text)?;
        Ok(begin.into_iter().chain(ids).chain(end).collect())
    }

    /// Encodes a text that has the pieces at its ends already.
    ///
    /// # Errors
    /// When the text is too long.
    pub(super) fn encode_rendered(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_parts(&self.rendered, text)
    }

    fn encode_parts(&self, added: &AddedTokens, text: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        for part in added.split(text) {
            match part {
                TextPart::Token(id) => ids.push(id),
                TextPart::Text(text) => ids.extend(match &self.inner {
                    Inner::Pieces(pieces) => {
                        pieces.encode(text).map_err(|error| as_error(&self.file, &error))?
                    }
                    Inner::Ranks(ranks) => ranks.encode(text, false)?,
                }),
            }
        }
        Ok(ids)
    }

    pub(super) fn decode(&self, tokens: &[u32], skips_special: bool) -> Result<String> {
        let decode = |run: &[u32]| match &self.inner {
            Inner::Pieces(pieces) => Ok(pieces.decode(run)),
            Inner::Ranks(ranks) => ranks.decode(run, false),
        };
        let (mut text, mut run) = (String::new(), Vec::new());
        for id in tokens {
            match self.rendered.get(*id) {
                None => run.push(*id),
                Some(token) if token.is_special && skips_special => {}
                Some(token) => {
                    text.push_str(&decode(&run)?);
                    text.push_str(&token.text);
                    run.clear();
                }
            }
        }
        text.push_str(&decode(&run)?);
        Ok(text)
    }

    pub(super) fn is_special(&self, token: u32) -> bool {
        let is_unknown = || self.piece(token).is_some_and(|piece| piece.kind == PieceKind::Unknown);
        self.rendered.get(token).map_or_else(is_unknown, |added| added.is_special)
    }

    pub(super) fn needs_next_token(&self, token: u32) -> bool {
        match (self.rendered.get(token), &self.inner) {
            (Some(added), _) => added.is_special,
            (None, Inner::Pieces(_)) => self.piece(token).is_none_or(|piece| piece.kind == PieceKind::Byte),
            (None, Inner::Ranks(ranks)) => ranks.needs_next_token(token),
        }
    }

    pub(super) fn token_bytes(&self, token: u32) -> Vec<u8> {
        match (self.rendered.get(token), &self.inner) {
            (Some(added), _) => added.text.clone().into_bytes(),
            (None, Inner::Ranks(ranks)) => ranks.token_bytes(token),
            (None, Inner::Pieces(_)) => match self.piece(token).map(|piece| (piece.byte(), &piece.text)) {
                Some((Some(byte), _)) => vec![byte],
                Some((None, text)) => String::from_utf8_lossy(text).replace('▁', " ").into_bytes(),
                None => Vec::new(),
            },
        }
    }

    fn piece(&self, token: u32) -> Option<&Piece> {
        match &self.inner {
            Inner::Pieces(pieces) => pieces.piece(token),
            Inner::Ranks(_) => None,
        }
    }
}

/// What divides the text between special tokens.
#[derive(Debug)]
enum Inner {
    Pieces(Box<PieceTokenizer>),
    Ranks(Box<JsonTokenizer>),
}

/// Returns the control pieces of a model, which only rendered texts have.
fn controls(pieces: &PieceTokenizer) -> Vec<AddedToken> {
    let all = (0_u32..).zip(&pieces.model().pieces);
    let controls = all.filter(|(_, piece)| piece.kind == PieceKind::Control);
    let special = controls.filter_map(|(id, piece)| {
        Some(AddedToken::special(id, std::str::from_utf8(&piece.text).ok()?.to_owned()))
    });
    special.collect()
}

fn as_error(file: &str, error: &sentencepiece_format::Error) -> Error {
    let file = file.to_owned();
    match error {
        sentencepiece_format::Error::Unsupported(reason) => Error::Unsupported { file, reason },
        sentencepiece_format::Error::LongText { .. } => Error::Tokenizer { file, reason: error.to_string() },
        _ => Error::Invalid { file, reason: error.to_string() },
    }
}
