//! Tensors and bytes by key, in the order of the file.

use foldhash::{HashMap, HashMapExt};

use super::leaf::Leaf;

/// Tensors below a key, which is empty for the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyTotal {
    pub(crate) key: String,
    pub(crate) tensors: u64,
    pub(crate) nbytes: u64,
}

impl From<KeyTotal> for (String, u64, u64) {
    fn from(KeyTotal { key, tensors, nbytes }: KeyTotal) -> Self {
        (key, tensors, nbytes)
    }
}

/// Totals of the tensors by key, in the order of the file.
#[derive(Debug)]
pub(crate) struct KeyTotals<'c> {
    keys: Vec<(&'c str, (u64, u64))>,
    places: HashMap<&'c str, usize>,
    /// Place of the last key.
    last: usize,
}

impl<'c> KeyTotals<'c> {
    pub(crate) fn new<L: Leaf + 'c>(
        leaves: impl Iterator<Item = &'c L>,
        key: impl Fn(&'c L) -> &'c str,
    ) -> Self {
        let mut totals = Self { keys: Vec::new(), places: HashMap::new(), last: 0 };
        for leaf in leaves {
            let total = leaf.total();
            if total.0 > 0 {
                totals.add(key(leaf), total);
            }
        }
        totals
    }

    fn add(&mut self, key: &'c str, (tensors, nbytes): (u64, u64)) {
        // Most tensors have the key of the one before. Empty texts are not compared: their addresses are not mapped, and masked loads
        // of AVX-512 from there take half a microsecond.
        let is_same = |(last, _): &(&str, _)| last.len() == key.len() && (key.is_empty() || *last == key);
        if !self.keys.get(self.last).is_some_and(is_same) {
            let next = self.keys.len();
            self.last = *self.places.entry(key).or_insert(next);
            if self.last == next {
                self.keys.push((key, (0, 0)));
            }
        }
        if let Some((_, (count, sum))) = self.keys.get_mut(self.last) {
            (*count, *sum) = (count.saturating_add(tensors), sum.saturating_add(nbytes));
        }
    }

    pub(crate) fn all(self) -> Vec<KeyTotal> {
        let total = |(key, (tensors, nbytes)): (&str, _)| KeyTotal { key: key.to_owned(), tensors, nbytes };
        self.keys.into_iter().map(total).collect()
    }

    /// Splits into the keys that `is_first` accepts and the others.
    pub(crate) fn split(self, is_first: impl Fn(&str) -> bool) -> [Vec<KeyTotal>; 2] {
        let (first, others) = self.all().into_iter().partition(|total| is_first(&total.key));
        [first, others]
    }
}
