//! The files next to a checkpoint that belong to the model: configurations, tokenizers, licenses.
//!
//! Facts: the names that Meta's and Hugging Face's models have.

use std::path::{Path, PathBuf};

use crate::{Error, Result};
use store::folder;

/// The tokenizer of Meta's models. It may be one folder higher, where it serves several sizes.
const TOKENIZER: &str = "tokenizer.model";
/// The names of companions, next to `tokenizer*.json` and `LICENSE*`.
const NAMES: &[&str] = &[
    "params.json",
    "config.json",
    "generation_config.json",
    TOKENIZER,
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
];

/// A file that belongs to a model: its name, and where it is.
pub type Companion = (String, PathBuf);

/// The files next to `checkpoint` that belong to the model, sorted by name.
///
/// # Errors
/// When the folder cannot be listed.
pub fn companions(checkpoint: &Path) -> Result<Vec<Companion>> {
    let io = |reason| Error::Io { path: folder(checkpoint).to_owned(), reason };
    let mut found = Vec::new();
    for entry in folder(checkpoint).read_dir().map_err(io)? {
        let path = entry.map_err(io)?.path();
        // A name that is not UTF-8 is not one of those above.
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if belongs(name) && path.is_file() {
            found.push((name.to_owned(), path.clone()));
        }
    }
    if !found.iter().any(|(name, _)| name == TOKENIZER) {
        let above = folder(checkpoint).join("..").join(TOKENIZER);
        if above.is_file() {
            found.push((TOKENIZER.to_owned(), above));
        }
    }
    found.sort();
    Ok(found)
}

fn belongs(name: &str) -> bool {
    NAMES.contains(&name)
        || name.starts_with("LICENSE")
        || (name.starts_with("tokenizer") && Path::new(name).extension().is_some_and(|ext| ext == "json"))
}

/// Whether one of the files is a tokenizer.
pub fn has_tokenizer(companions: &[Companion]) -> bool {
    companions.iter().any(|(name, _)| name == TOKENIZER || name == "tokenizer.json" || name == "vocab.json")
}
