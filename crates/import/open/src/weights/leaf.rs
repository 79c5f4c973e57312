//! The items of a checkpoint, as far as it matters where the weights are.

use torch_import::CheckpointItem;

/// Number of nested dicts in which weights are looked for.
pub(crate) const LEVELS: usize = 4;

/// Returns true if a key has one of the words, whatever separates them.
pub(crate) fn has_word(key: &str, words: &[&str]) -> bool {
    let key = key.to_ascii_lowercase();
    key.split(|c: char| !c.is_ascii_alphabetic()).any(|word| words.contains(&word))
}

/// An item of a checkpoint, as far as it matters where the weights are.
pub(crate) trait Leaf {
    fn name(&self) -> &str;
    /// Returns the path of the dict that is `level` dicts below the root's key, if the item is in it.
    fn key_at(&self, level: usize) -> Option<&str>;
    /// Returns true if the item is in a dict that is a value of the root.
    fn is_in_dict_of_root(&self) -> bool;
    /// Returns the number of tensors and their bytes.
    fn total(&self) -> (u64, u64);
}

impl Leaf for CheckpointItem {
    fn name(&self) -> &str {
        &self.name
    }

    fn key_at(&self, level: usize) -> Option<&str> {
        Self::key_at(self, level)
    }

    fn is_in_dict_of_root(&self) -> bool {
        Self::is_in_dict_of_root(self)
    }

    fn total(&self) -> (u64, u64) {
        let add = |(count, sum): (u64, u64), nbytes| (count.saturating_add(1), sum.saturating_add(nbytes));
        self.tensors().map(|(_, tensor)| tensor.nbytes()).fold((0, 0), add)
    }
}

/// Returns the keys of the dicts around a leaf, from the root.
pub(crate) fn dict_keys<L: Leaf>(leaf: &L) -> impl Iterator<Item = (&str, &str)> {
    let mut before = 0;
    (0..LEVELS).map_while(move |level| {
        let path = leaf.key_at(level)?;
        let key = path.get(before..)?;
        before = path.len().saturating_add(1);
        Some((path, key))
    })
}
