//! What lies beside a checkpoint: the files that travel in `misc/`, params.json, other shards.
//!
//! Everything is sought beside the path as it was typed: a model hub's cache holds symbolic links to
//! files that lie elsewhere under other names.

use std::io;
use std::path::{Path, PathBuf};

/// The tokenizer of Meta's models, which may lie a folder higher: one serves several sizes.
const TOKENIZER: &str = "tokenizer.model";
/// Files that are taken along, beside `tokenizer*.json` and `LICENSE*`.
const MISC: &[&str] = &[
    "params.json",
    "config.json",
    "generation_config.json",
    TOKENIZER,
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
];

/// A file for `misc/`: its name there, and where it lies.
pub(crate) type Misc = (String, PathBuf);

/// The folder of a path, as typed.
pub(crate) fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// The name of a path's last part.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// The files beside `checkpoint` that travel in `misc/`, sorted by name.
pub(crate) fn misc(checkpoint: &Path) -> io::Result<Vec<Misc>> {
    let mut found = Vec::new();
    for entry in folder(checkpoint).read_dir()? {
        let path = entry?.path();
        // A name that is no UTF-8 is none of those above.
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if travels(name) && path.is_file() {
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

fn travels(name: &str) -> bool {
    MISC.contains(&name)
        || name.starts_with("LICENSE")
        || (name.starts_with("tokenizer") && Path::new(name).extension().is_some_and(|ext| ext == "json"))
}

/// Whether one of the files is a tokenizer.
pub(crate) fn has_tokenizer(misc: &[Misc]) -> bool {
    misc.iter().any(|(name, _)| name == TOKENIZER || name == "tokenizer.json" || name == "vocab.json")
}

/// One of several files that hold a checkpoint together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    /// Counted from 1.
    pub(crate) number: usize,
    /// How many there are.
    pub(crate) of: usize,
}

/// What the file's name, and for Meta's numbering its neighbours' names, say of it being a shard.
pub(crate) fn shard(path: &Path) -> Option<Shard> {
    let name = file_name(path);
    numbered_of(&name).or_else(|| {
        let number = consolidated(&name)?;
        let neighbours = folder(path).read_dir().ok()?;
        let last = neighbours
            .filter_map(|entry| consolidated(entry.ok()?.file_name().to_str()?))
            .max()
            .unwrap_or_default()
            .max(number);
        (last > 0).then_some(Shard { number: number.saturating_add(1), of: last.saturating_add(1) })
    })
}

/// `consolidated.03.pth` → 3.
fn consolidated(name: &str) -> Option<usize> {
    let number = name.strip_prefix("consolidated.")?;
    let number = number.strip_suffix(".pth").or_else(|| number.strip_suffix(".pt"))?;
    digits(number)
}

/// `pytorch_model-00002-of-00003.bin` → 2 of 3.
fn numbered_of(name: &str) -> Option<Shard> {
    let (stem, _extension) = name.rsplit_once('.')?;
    let (stem, of) = stem.rsplit_once("-of-")?;
    let (_, number) = stem.rsplit_once('-')?;
    let (number, of) = (digits(number)?, digits(of)?);
    (of > 1).then_some(Shard { number, of })
}

fn digits(text: &str) -> Option<usize> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_shards() {
        assert_eq!(consolidated("consolidated.07.pth"), Some(7));
        assert_eq!(consolidated("consolidated.pth"), None);
        assert_eq!(consolidated("consolidated.x.pth"), None);
        assert_eq!(numbered_of("pytorch_model-00002-of-00003.bin"), Some(Shard { number: 2, of: 3 }));
        assert_eq!(numbered_of("model-00001-of-00001.bin"), None);
        assert_eq!(numbered_of("end-of-life.bin"), None);
    }
}
