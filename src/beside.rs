//! What lies beside a checkpoint: the files that travel in `misc/`, params.json, other shards.
//!
//! Everything is sought beside the path as it was typed: a model hub's cache holds symbolic links to
//! files that lie elsewhere under other names.

use std::io;
use std::path::{Path, PathBuf};

use store::{file_name, folder};

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
    let numbering = Numbering::of(&name)?;
    if let Some(of) = numbering.of {
        // Some count from 0; the first file tells.
        let zero = numbering.number == 0 || folder(path).join(numbering.name(0)).exists();
        let number = numbering.number.saturating_add(usize::from(zero));
        return (of > 1).then_some(Shard { number, of });
    }
    let neighbours = folder(path).read_dir().ok()?;
    let number = |name: &str| Some(Numbering::of(name).filter(|other| other.of.is_none())?.number);
    let last = neighbours
        .filter_map(|entry| number(entry.ok()?.file_name().to_str()?))
        .max()
        .unwrap_or_default()
        .max(numbering.number);
    (last > 0).then(|| Shard { number: numbering.number.saturating_add(1), of: last.saturating_add(1) })
}

/// What a name of a numbered file says: `consolidated.03.pth`, `pytorch_model-00002-of-00003.bin`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbering {
    before: String,
    /// As the name has it.
    pub(crate) number: usize,
    width: usize,
    /// How many files there are, where the name says so.
    pub(crate) of: Option<usize>,
    /// What follows the number.
    after: String,
}

impl Numbering {
    /// What `name` says, when it is such a name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let (stem, extension) = name.rsplit_once('.')?;
        let new = |before: &str, number: &str, of, after: String| {
            let (before, width) = (before.to_owned(), number.len());
            Some(Self { before, number: digits(number)?, width, of, after })
        };
        if let Some(number) = stem.strip_prefix("consolidated.")
            && matches!(extension, "pth" | "pt")
        {
            return new("consolidated.", number, None, format!(".{extension}"));
        }
        let (stem, of) = stem.rsplit_once("-of-")?;
        let (before, number) = stem.rsplit_once('-')?;
        new(&format!("{before}-"), number, Some(digits(of)?), format!("-of-{of}.{extension}"))
    }

    /// The set that the file belongs to; equal for its other files.
    pub(crate) fn set(&self) -> String {
        format!("{}{}", self.before, if self.of.is_some() { &self.after } else { "" })
    }

    /// The name of another file of the set.
    pub(crate) fn name(&self, number: usize) -> String {
        format!("{}{number:0width$}{}", self.before, self.after, width = self.width)
    }

    /// The number of the set's first file: Meta counts from 0, the others from 1, but for those that have
    /// a file 0.
    pub(crate) fn first(&self, has_zero: bool) -> usize {
        usize::from(self.of.is_some() && !has_zero)
    }

    /// What the set would be called if it were one file.
    pub(crate) fn without_number(&self) -> String {
        let extension = self.after.rsplit_once('.').map_or("", |(_, extension)| extension);
        format!("{}.{extension}", self.before.trim_end_matches(['-', '.']))
    }
}

fn digits(text: &str) -> Option<usize> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_shards() {
        let number = |name: &str| Numbering::of(name).map(|numbering| (numbering.number, numbering.of));
        assert_eq!(number("consolidated.07.pth"), Some((7, None)));
        assert_eq!(number("consolidated.pth"), None);
        assert_eq!(number("consolidated.x.pth"), None);
        assert_eq!(number("pytorch_model-00002-of-00003.bin"), Some((2, Some(3))));
        assert_eq!(number("end-of-life.bin"), None);
    }

    #[test]
    fn a_set_has_a_name_without_number() {
        let whole = |name: &str| Numbering::of(name).map(|numbering| numbering.without_number());
        assert_eq!(whole("consolidated.07.pth").as_deref(), Some("consolidated.pth"));
        assert_eq!(whole("model-00002-of-00003.safetensors").as_deref(), Some("model.safetensors"));
        let numbering = Numbering::of("m-00002-of-00003.bin").expect("numbered");
        assert_eq!(numbering.name(1), "m-00001-of-00003.bin");
    }
}
