//! The memo: objects by integer key. Picklers number the keys from 0; a hostile pickle can use any key.
//!
//! Source: `load_put`, `load_memoize` and `load_get` of CPython's `Lib/pickle.py`.

use std::collections::BTreeMap;

use crate::object::ObjectId;

/// Memo whose dense keys are in a `Vec` and whose sparse keys are in a map. Memory is proportional to the number of
/// entries, whatever their keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memo {
    /// Objects by key; [`ABSENT_ID`] if the key has no entry.
    dense: Vec<ObjectId>,
    sparse: BTreeMap<u64, ObjectId>,
    len: usize,
}

/// Id that the heap never assigns, which marks an absent entry.
const ABSENT_ID: ObjectId = ObjectId(u32::MAX);

/// Bytes of an entry of the map: a key and an id in a node that is two thirds full.
const SPARSE_ENTRY: usize = 32;

/// Slots that the `Vec` may have beyond twice the number of entries.
const DENSE_SLACK: usize = 64;

impl Memo {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn nbytes(&self) -> usize {
        let dense = self.dense.capacity().saturating_mul(size_of::<ObjectId>());
        dense.saturating_add(self.sparse.len().saturating_mul(SPARSE_ENTRY))
    }

    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<ObjectId> {
        let dense = usize::try_from(key).ok().and_then(|key| self.dense.get(key).copied());
        dense.filter(|&id| id != ABSENT_ID).or_else(|| self.sparse.get(&key).copied())
    }

    #[inline]
    pub(crate) fn put(&mut self, key: u64, id: ObjectId) {
        if !self.sparse.is_empty()
            && let Some(entry) = self.sparse.get_mut(&key)
        {
            *entry = id;
            return;
        }
        if key == self.dense.len() as u64 && self.dense.len() == self.len {
            // Picklers number the objects one after the other.
            self.dense.push(id);
            self.len = self.len.saturating_add(1);
            return;
        }
        let reach = self.len.saturating_mul(2).saturating_add(DENSE_SLACK);
        let old = match usize::try_from(key) {
            // The `Vec` is never longer than `reach`, which only grows.
            Ok(key) if key < reach => {
                if key >= self.dense.len() {
                    self.dense.resize(key.saturating_add(1), ABSENT_ID);
                }
                self.dense.get_mut(key).map_or(ABSENT_ID, |entry| std::mem::replace(entry, id))
            }
            _ => self.sparse.insert(key, id).unwrap_or(ABSENT_ID),
        };
        self.len = self.len.saturating_add(usize::from(old == ABSENT_ID));
    }

    /// Returns the entries in ascending order of their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, ObjectId)> + '_ {
        let mut dense =
            (0_u64..).zip(self.dense.iter().copied()).filter(|&(_, id)| id != ABSENT_ID).peekable();
        let mut sparse = self.sparse.iter().map(|(&key, &id)| (key, id)).peekable();
        std::iter::from_fn(move || match (dense.peek(), sparse.peek()) {
            (Some((left, _)), Some((right, _))) if right < left => sparse.next(),
            (Some(_), _) => dense.next(),
            (None, _) => sparse.next(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_keys_cost_no_memory_and_stay_in_order() {
        let mut memo = Memo::default();
        for (key, id) in [(0xffff_ffff, 1), (0, 2), (70, 3), (1 << 40, 4), (0, 5), (0xffff_ffff, 6)] {
            memo.put(key, ObjectId(id));
        }
        for key in 1..70 {
            memo.put(key, ObjectId(7));
        }
        memo.put(70, ObjectId(8));
        assert!(memo.dense.capacity() < 1000);
        assert_eq!(memo.len(), 73);
        assert_eq!(memo.get(0), Some(ObjectId(5)));
        assert_eq!(memo.get(70), Some(ObjectId(8)));
        assert_eq!(memo.get(0xffff_ffff), Some(ObjectId(6)));
        assert_eq!(memo.get(71), None);
        let keys: Vec<u64> = memo.iter().map(|(key, _)| key).collect();
        assert!(keys.is_sorted());
        assert_eq!(keys.len(), 73);
    }

    #[test]
    fn keys_without_large_gaps_are_in_the_vec() {
        let mut memo = Memo::default();
        memo.put(DENSE_SLACK as u64, ObjectId(1));
        assert_eq!((memo.dense.len(), memo.sparse.len()), (0, 1));
        for key in 0..DENSE_SLACK as u64 {
            memo.put(key, ObjectId(2));
        }
        assert_eq!((memo.dense.len(), memo.sparse.len()), (DENSE_SLACK, 1));
        // A key in the map stays there, even if the keys around it are in the `Vec`.
        memo.put(100, ObjectId(3));
        memo.put(DENSE_SLACK as u64, ObjectId(4));
        assert_eq!((memo.dense.len(), memo.sparse.len()), (101, 1));
        let keys: Vec<u64> = memo.iter().map(|(key, _)| key).collect();
        assert_eq!(keys, (0..=DENSE_SLACK as u64).chain([100]).collect::<Vec<_>>());
    }
}
