//! Numbered file names: the shards of a checkpoint.
//!
//! Facts: `consolidated.NN.pth` of Meta's `llama-models`, `NAME-NNNNN-of-NNNNN.EXT` of Hugging Face's `transformers`.

use std::path::Path;

use output::{file_name, folder};

/// Position of a file within a set of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Shard number, counted from 1.
    pub number: usize,
    /// Number of shards in the set.
    pub of: usize,
}

/// Returns the shard that the name of a file stands for, or `None` for a checkpoint of its own. Meta's names do not contain
/// the number of shards, which is taken from the other files in the folder.
pub fn shard(path: &Path) -> Option<Shard> {
    let name = file_name(path);
    let numbering = Numbering::from_name(&name)?;
    if let Some(of) = numbering.of {
        // Some sets count from 0, in which case file 0 exists.
        let zero = numbering.number == 0 || folder(path).join(numbering.name(0)).exists();
        let number = numbering.number.saturating_add(usize::from(zero));
        return (of > 1).then_some(Shard { number, of });
    }
    let neighbours = folder(path).read_dir().ok()?;
    let number = |name: &str| Some(Numbering::from_name(name).filter(|other| other.of.is_none())?.number);
    let last = neighbours
        .filter_map(|entry| number(entry.ok()?.file_name().to_str()?))
        .max()
        .unwrap_or_default()
        .max(numbering.number);
    (last > 0).then(|| Shard { number: numbering.number.saturating_add(1), of: last.saturating_add(1) })
}

/// Parsed name of a numbered file, such as `consolidated.03.pth` or `pytorch_model-00002-of-00003.bin`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbering {
    before: String,
    /// Number as written in the name, not adjusted for sets that count from 0.
    pub(crate) number: usize,
    width: usize,
    /// Number of shards, if the name contains it.
    pub(crate) of: Option<usize>,
    /// Rest of the name after the number.
    after: String,
}

impl Numbering {
    /// Parses a numbered file name; returns `None` if `name` is not one.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
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

    /// Returns a key that is equal for all files of the same set.
    pub(crate) fn set(&self) -> String {
        format!("{}{}", self.before, if self.of.is_some() { &self.after } else { "" })
    }

    /// Returns the name of the file with this number in the same set.
    pub(crate) fn name(&self, number: usize) -> String {
        format!("{}{number:0width$}{}", self.before, self.after, width = self.width)
    }

    /// Returns the number of the set's first file: 0 for Meta's names and for sets that have a file 0, otherwise 1.
    pub(crate) fn first(&self, has_zero: bool) -> usize {
        usize::from(self.of.is_some() && !has_zero)
    }

    /// Returns the name that the set would have as a single file.
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
    fn shards_are_recognised_by_name() {
        let number =
            |name: &str| Numbering::from_name(name).map(|numbering| (numbering.number, numbering.of));
        assert_eq!(number("consolidated.07.pth"), Some((7, None)));
        assert_eq!(number("consolidated.pth"), None);
        assert_eq!(number("consolidated.x.pth"), None);
        assert_eq!(number("pytorch_model-00002-of-00003.bin"), Some((2, Some(3))));
        assert_eq!(number("end-of-life.bin"), None);
    }

    #[test]
    fn a_set_is_named_without_a_number() {
        let whole = |name: &str| Numbering::from_name(name).map(|numbering| numbering.without_number());
        assert_eq!(whole("consolidated.07.pth").as_deref(), Some("consolidated.pth"));
        assert_eq!(whole("model-00002-of-00003.safetensors").as_deref(), Some("model.safetensors"));
        let numbering = Numbering::from_name("m-00002-of-00003.bin").expect("numbered");
        assert_eq!(numbering.name(1), "m-00001-of-00003.bin");
    }
}
