//! Documents of a tokenizer that the loaders of another layout need, and that Meta's folders lack.
//!
//! Facts: `tokenizer_config.json` as `LlamaTokenizer` of `transformers` saves it.

use std::path::Path;

use open::Model;
use open::files::{Companion, DOCUMENT_MAX};
use sentencepiece_format::{Algorithm, PieceKind, PieceModel};
use serde_json::{Value, json};

use crate::Result;

/// The tokenizer's file of Meta, which is either that of `SentencePiece` or that of tiktoken.
const PIECES: &str = "tokenizer.model";
const JSON: &str = "tokenizer.json";
const CONFIG: &str = "tokenizer_config.json";

/// The `tokenizer_config.json` of Llama 3's `tokenizer.model`, which has none next to it.
const TIKTOKEN_CONFIG: &str = r#"{"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>", "tokenizer_class": "PreTrainedTokenizerFast"}"#;

/// Returns the names and contents of the documents that describe the tokenizer among `companions`, and that are not there.
///
/// # Errors
/// When the tokenizer's file cannot be read or is damaged.
pub(crate) fn tokenizer_documents(
    model: &Model,
    companions: &[Companion],
) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let find = |name: &str| companions.iter().find(|(known, _)| known == name).map(|(_, path)| path);
    let Some(path) = find(PIECES).filter(|_| find(JSON).is_none() && find(CONFIG).is_none()) else {
        return Ok(Vec::new());
    };
    let bytes = read_file(path)?;
    if let Some(json) = tiktoken_json(&bytes)? {
        return Ok(vec![(JSON, json.into_bytes()), (CONFIG, TIKTOKEN_CONFIG.into())]);
    }
    // Loaders of a folder that has a configuration know what its tokenizer adds.
    if model.sources.documents.config()?.is_some() {
        return Ok(Vec::new());
    }
    Ok(pieces_config(bytes).map(|config| (CONFIG, config.to_string().into_bytes())).into_iter().collect())
}

/// Returns the settings of a `SentencePiece` model of Meta; `None` for another kind, which Meta has not published.
fn pieces_config(bytes: Vec<u8>) -> Option<Value> {
    let model = PieceModel::from_bytes(&bytes.into()).ok()?;
    if model.algorithm != Algorithm::Bpe {
        return None;
    }
    let text = |text: &[u8]| std::str::from_utf8(text).ok().map(str::to_owned);
    let added = model.pieces.iter().enumerate().filter_map(|(id, piece)| {
        let is_special = matches!(piece.kind, PieceKind::Control | PieceKind::Unknown);
        let is_added = is_special || piece.kind == PieceKind::UserDefined;
        let token = json!({"content": text(&piece.text)?, "special": is_special, "normalized": false});
        is_added.then_some((id.to_string(), token))
    });
    let unknown = model.pieces.iter().find(|piece| piece.kind == PieceKind::Unknown);
    let [begin, end] = &model.ends;
    Some(json!({
        "add_bos_token": true,
        "add_eos_token": false,
        "added_tokens_decoder": added.collect::<serde_json::Map<String, Value>>(),
        "bos_token": text(begin)?,
        "eos_token": text(end)?,
        "tokenizer_class": "LlamaTokenizer",
        "unk_token": text(&unknown?.text)?,
    }))
}

/// Reads a document that is next to the weights.
///
/// # Errors
/// When the file cannot be read, or is longer than any document.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>> {
    let io = |error: std::io::Error| byte_source::Error::from(error).in_file(path);
    let len = path.metadata().map_err(io)?.len();
    if len > DOCUMENT_MAX {
        let path = path.to_owned();
        return Err(open::files::Problem::DocumentTooLarge { path, len, limit: DOCUMENT_MAX }.into());
    }
    std::fs::read(path).map_err(io)
}

/// Returns the `tokenizer.json` of Llama 3's `tokenizer.model`; `None` for a `SentencePiece` model.
#[cfg(feature = "tokenizer")]
fn tiktoken_json(bytes: &[u8]) -> Result<Option<String>> {
    let failed = |error: generate::Error| crate::Problem::PreTokenizer { reason: error.to_string() };
    Ok(generate::Tokenizer::json_of_tiktoken(bytes).map_err(failed)?)
}

#[cfg(not(feature = "tokenizer"))]
#[expect(clippy::unnecessary_wraps, reason = "reading a tokenizer can fail")]
fn tiktoken_json(_: &[u8]) -> Result<Option<String>> {
    Ok(None)
}
