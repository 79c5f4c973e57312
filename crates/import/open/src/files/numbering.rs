//! Numbered file names: the shards of a checkpoint.
//!
//! Facts: `consolidated.NN.pth` of Meta's `llama-models`, `NAME-NNNNN-of-NNNNN.EXT` of Hugging Face's `transformers`,
//! `NAME-NNNNN-of-NNNNN.VARIANT.EXT` of its `diffusers`; other programs write underscores and dots for the dashes.

use byte_source::Location;
use output::file_name;

/// Position of a file within a set of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardNumber {
    /// Shard number, counted from 1.
    pub number: usize,
    /// Number of shards in the set.
    pub files_in_set: usize,
}

/// Returns the shard that the name of a file stands for, or `None` for a checkpoint of its own. Meta's names do not contain
/// the number of shards, which is taken from the other files in the folder.
pub(crate) fn shard_number(file: &Location) -> Option<ShardNumber> {
    let name = file_name(file.path());
    NumberedFileName::parse_file_name(&name)?;
    let others = file.parent().list().map(|folder| folder.listing.files).unwrap_or_default();
    shard_number_among(&name, &others)
}

/// Returns the shard that a name among `names` stands for, like [`shard_number`].
fn shard_number_among(name: &str, names: &[String]) -> Option<ShardNumber> {
    let numbering = NumberedFileName::parse_file_name(name)?;
    let has_zero = || names.contains(&numbering.name_of_shard(0));
    numbering.position(has_zero, || names.iter().filter_map(|name| unsized_number(name)).max())
}

/// Returns the number in a name that does not contain the number of shards.
fn unsized_number(name: &str) -> Option<usize> {
    Some(NumberedFileName::parse_file_name(name).filter(|other| other.files_in_set.is_none())?.number)
}

/// Parsed name of a numbered file, such as `consolidated.03.pth` or `pytorch_model-00002-of-00003.bin`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NumberedFileName {
    before: String,
    /// Number as written in the name, not adjusted for sets that count from 0.
    pub(crate) number: usize,
    width: usize,
    /// Number of shards, if the name contains it.
    pub(crate) files_in_set: Option<usize>,
    /// Rest of the name after the number.
    after: String,
}

/// Text between the number of a shard and the number of all.
const OF: &[&str] = &["-of-", "_of_"];

impl NumberedFileName {
    pub(crate) fn parse_file_name(name: &str) -> Option<Self> {
        let (stem, extension) = name.rsplit_once('.')?;
        let new = |before: &str, number: &str, of, after: String| {
            let (before, width) = (before.to_owned(), number.len());
            Some(Self { before, number: parse_digits(number)?, width, files_in_set: of, after })
        };
        if let Some(number) = stem.strip_prefix("consolidated.")
            && matches!(extension, "pth" | "pt")
        {
            return new("consolidated.", number, None, format!(".{extension}"));
        }
        let (start, rest) = OF.iter().find_map(|of| stem.rsplit_once(of))?;
        let of = rest.split_once('.').map_or(rest, |(of, _)| of);
        let number = start.rsplit(['-', '_', '.']).next().filter(|number| number.len() < start.len())?;
        let (before, after) = (start.strip_suffix(number)?, name.strip_prefix(start)?);
        new(before, number, Some(parse_digits(of)?), after.to_owned())
    }

    /// Returns the position in the set. Some sets count from 0, in which case file 0 exists. `last` is the largest number
    /// of a set whose names do not contain the number of shards.
    fn position(
        &self,
        has_zero: impl FnOnce() -> bool,
        last: impl FnOnce() -> Option<usize>,
    ) -> Option<ShardNumber> {
        if let Some(of) = self.files_in_set {
            let zero = self.number == 0 || has_zero();
            let number = self.number.saturating_add(usize::from(zero));
            return (of > 1).then_some(ShardNumber { number, files_in_set: of });
        }
        let last = last()?.max(self.number);
        (last > 0).then(|| ShardNumber {
            number: self.number.saturating_add(1),
            files_in_set: last.saturating_add(1),
        })
    }

    pub(crate) fn set_key(&self) -> String {
        format!("{}{}", self.before, if self.files_in_set.is_some() { &self.after } else { "" })
    }

    pub(crate) fn name_of_shard(&self, number: usize) -> String {
        format!("{}{number:0width$}{}", self.before, self.after, width = self.width)
    }

    /// Returns the number of the set's first file: 0 for Meta's names and for sets that have a file 0, otherwise 1.
    pub(crate) fn first_number(&self, has_zero: bool) -> usize {
        usize::from(self.files_in_set.is_some() && !has_zero)
    }

    /// Returns the name that the set would have as a single file.
    pub(crate) fn single_file_name(&self) -> String {
        let extension = self.after.rsplit_once('.').map_or("", |(_, extension)| extension);
        let rest = OF.iter().find_map(|of| self.after.strip_prefix(of)).unwrap_or_default();
        let variant = rest.split_once('.').and_then(|(_, rest)| rest.rsplit_once('.'));
        let variant = variant.map_or_else(String::new, |(variant, _)| format!(".{variant}"));
        format!("{}{variant}.{extension}", self.before.trim_end_matches(['-', '_', '.']))
    }
}

fn parse_digits(text: &str) -> Option<usize> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_recognised_by_name() {
        let number = |name: &str| {
            NumberedFileName::parse_file_name(name)
                .map(|numbering| (numbering.number, numbering.files_in_set))
        };
        assert_eq!(number("consolidated.07.pth"), Some((7, None)));
        assert_eq!(number("consolidated.pth"), None);
        assert_eq!(number("consolidated.x.pth"), None);
        assert_eq!(number("consolidated.+7.pth"), None);
        assert_eq!(number("pytorch_model-00002-of-00003.bin"), Some((2, Some(3))));
        assert_eq!(number("pytorch_model_00002-of-00072.bin"), Some((2, Some(72))));
        assert_eq!(number("model_00002_of_00072.bin"), Some((2, Some(72))));
        assert_eq!(number("model-00001-of-00002.fp16.safetensors"), Some((1, Some(2))));
        assert_eq!(number("model.fp16-00001-of-00002.safetensors"), Some((1, Some(2))));
        assert_eq!(number("end-of-life.bin"), None);
        assert_eq!(number("00001-of-00002.bin"), None);
    }

    #[test]
    fn a_file_that_is_a_whole_set_is_not_a_shard() {
        let zero = "model-00000-of-00002.bin".to_owned();
        let shard = |name: &str| shard_number_among(name, &[name.to_owned()]);
        let second = Some(ShardNumber { number: 2, files_in_set: 2 });
        assert_eq!(shard_number_among("model-00001-of-00002.bin", &[zero]), second);
        assert_eq!(shard("model-00000-of-00002.bin"), Some(ShardNumber { number: 1, files_in_set: 2 }));
        assert_eq!(shard("model-00001-of-00001.bin"), None);
        assert_eq!(shard("model-00001-of-00002.bin"), Some(ShardNumber { number: 1, files_in_set: 2 }));
        assert_eq!(shard("consolidated.00.pth"), None);
        assert_eq!(shard("consolidated.01.pth"), second);
    }

    #[test]
    fn a_set_is_named_without_a_number() {
        let whole = |name: &str| {
            NumberedFileName::parse_file_name(name).map(|numbering| numbering.single_file_name())
        };
        assert_eq!(whole("consolidated.07.pth").as_deref(), Some("consolidated.pth"));
        assert_eq!(whole("model-00002-of-00003.safetensors").as_deref(), Some("model.safetensors"));
        let variant = Some("model.fp16.safetensors");
        assert_eq!(whole("model-00001-of-00002.fp16.safetensors").as_deref(), variant);
        assert_eq!(whole("model.fp16-00001-of-00002.safetensors").as_deref(), variant);
        assert_eq!(whole("model_00001_of_00002.bin").as_deref(), Some("model.bin"));
        let numbering = NumberedFileName::parse_file_name("m-00002-of-00003.bin").expect("numbered");
        assert_eq!(numbering.name_of_shard(1), "m-00001-of-00003.bin");
    }
}
