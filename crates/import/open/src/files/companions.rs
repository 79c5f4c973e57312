//! Companions: the files next to a checkpoint that belong to the model, such as configurations, tokenizers and licenses.
//!
//! Facts: the names that Meta's models have, the `VOCAB_FILES_NAMES` of Hugging Face's tokenizers, and the `CONFIG_NAME` of
//! `peft`, whose file says how to merge an adapter.

use std::io;
use std::path::{Path, PathBuf};

use byte_source::{Listing, Location};

use crate::files::links::link_target_outside;
use crate::files::{Error, FilesNote, Result};

/// File name of the tokenizer of Meta's models. The file may be in the parent folder, where several model sizes share it.
const TOKENIZER: &str = "tokenizer.model";
/// File names each of which is a complete tokenizer.
const TOKENIZERS: &[&str] = &[
    TOKENIZER,
    "tokenizer.json",
    "tekken.json",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
];
/// File names of companions, besides the patterns `tokenizer*.json` and `LICENSE*`.
const COMPANION_NAMES: &[&str] = &[
    "params.json",
    "config.json",
    "generation_config.json",
    "adapter_config.json",
    TOKENIZER,
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "source.spm",
    "target.spm",
    "tekken.json",
    "normalizer.json",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
];
/// Starts of the names of files with the Python code of a model, which its `config.json` names.
const CODE_PREFIXES: &[&str] =
    &["configuration_", "image_processing_", "modeling_", "processing_", "tokenization_"];
/// Document of sentence-transformers with the modules that follow the model, each in a folder such as `1_Pooling`.
const MODULES: &str = "modules.json";

/// Names of companions that a server without listings is asked for.
pub const COMMON_COMPANIONS: &[&str] = &[
    "LICENSE",
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "merges.txt",
    "params.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
];

/// File name and path of a file that belongs to a model.
pub type Companion = (String, PathBuf);

/// Lists the companions in the folder of `checkpoint`, sorted by name, and returns a note on each companion that is left out
/// because it is a link out of the folder, on code and on folders of modules. There are none in a store without listings.
///
/// # Errors
/// When the folder cannot be listed.
pub(crate) fn companions(checkpoint: &Location) -> Result<(Vec<Companion>, Vec<FilesNote>)> {
    let folder = checkpoint.parent();
    let listing = match folder.store().list(folder.path()) {
        Err(reason) if reason.kind() == io::ErrorKind::Unsupported => Listing::default(),
        listing => listing.map_err(|error| Error::from(error).in_file(folder.path()))?,
    };
    let (mut found, mut notes) = (Vec::new(), Vec::new());
    let mut add = |name: &str, path: PathBuf, outside: Option<PathBuf>| match outside {
        Some(target) => notes.push(FilesNote::LinkLeftOut { path, target }),
        None => found.push((name.to_owned(), path)),
    };
    for name in listing.files.iter().filter(|name| is_companion_name(name)) {
        let path = folder.path().join(name);
        let is_link = listing.links.contains(name);
        let outside = if is_link { link_target_outside(&path, folder.path()) } else { None };
        add(name, path, outside);
    }
    let parent = folder.join("..");
    let above = parent.join(TOKENIZER);
    if !listing.has_file(TOKENIZER) && above.is_file() {
        let outside = link_target_outside(above.path(), parent.path());
        add(TOKENIZER, above.path().to_owned(), outside);
    }
    found.sort();
    let is_code = |name: &&String| {
        Path::new(name).extension().is_some_and(|it| it == "py")
            && CODE_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    let code: Vec<String> = listing.files.iter().filter(is_code).cloned().collect();
    if !code.is_empty() {
        notes.push(FilesNote::CodeLeftOut { files: code });
    }
    let is_module = |name: &&String| name.starts_with(|first: char| first.is_ascii_digit());
    let modules: Vec<String> = listing.folders.iter().filter(is_module).cloned().collect();
    if listing.has_file(MODULES) && !modules.is_empty() {
        notes.push(FilesNote::ModulesLeftOut { folders: modules });
    }
    Ok((found, notes))
}

/// Returns true for the name of a companion, in no folder below the checkpoint's.
pub fn is_companion_name(name: &str) -> bool {
    if name.contains('/') {
        return false;
    }
    COMPANION_NAMES.contains(&name)
        || name.starts_with("LICENSE")
        || (name.starts_with("tokenizer") && Path::new(name).extension().is_some_and(|ext| ext == "json"))
}

/// Returns true if one of the files is a tokenizer.
pub fn has_tokenizer(companions: &[Companion]) -> bool {
    companions.iter().any(|(name, _)| TOKENIZERS.contains(&name.as_str()))
}
