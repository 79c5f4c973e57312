//! Finds shards that are copies of another shard of the same set.
//!
//! A file that was copied over another shard, or downloaded under two names, has parts of the right shapes, but merging
//! it yields another model. The parts of a trained tensor differ in their first bytes, so the check reads about one
//! window of each file.

use byte_source::{Observer, Sha256, Sink, WINDOW};
use foldhash::{HashMap, HashMapExt};
use tensor::Tensor;

/// Groups of shards that had the same elements in all tensors so far.
pub(super) struct EqualShardGroups {
    /// For each shard, the first shard of its group, which may be itself.
    group: Vec<usize>,
    /// For each shard, a tensor that is equal within its group and whose elements are not all the same, as evidence of
    /// a copy.
    evidence: Vec<Option<String>>,
}

impl EqualShardGroups {
    /// Starts with `count` shards in one group.
    pub(super) fn new(count: usize) -> Self {
        Self { group: vec![0; count], evidence: vec![None; count] }
    }

    /// Compares the parts of a tensor in all shards, up to the window in which the last two of them differ.
    pub(super) fn compare_parts(
        &mut self,
        name: &str,
        parts: &[Tensor],
        observer: &dyn Observer,
    ) -> Result<(), byte_source::Error> {
        let parts = without_repeats(parts);
        let (len, element) = parts.first().map_or((0, 1), |part| (part.nbytes(), part.dtype().size()));
        let element = usize::try_from(element).unwrap_or(1).max(1);
        let gathered: Vec<_> = parts.iter().map(Tensor::gathered).collect();
        // The first element of each part, and a flag that is true if all elements so far are equal to it.
        let mut constant: Vec<(Vec<u8>, bool)> = vec![(Vec::new(), true); parts.len()];
        let mut start = 0;
        while start < len && self.has_groups() {
            let mut next: HashMap<(usize, [u8; 32]), usize> = HashMap::new();
            let mut group = self.group.clone();
            for (shard, (part, (value, same))) in gathered.iter().zip(&mut constant).enumerate() {
                let Some(known) = self.in_group(shard) else { continue };
                observer.check()?;
                let window = part.window(start)?;
                if start == 0 {
                    *value = window.get(..element).unwrap_or_default().to_vec();
                }
                *same = *same && window.chunks(element).all(|element| element == value.as_slice());
                let mut hash = Sha256::default();
                hash.write(window)?;
                let first = *next.entry((known, hash.digest())).or_insert(shard);
                if let Some(group) = group.get_mut(shard) {
                    *group = first;
                }
            }
            self.group = group;
            start = start.saturating_add(WINDOW as u64);
        }
        for (shard, (_, same)) in constant.iter().enumerate() {
            if !same
                && self.in_group(shard).is_some()
                && let Some(shown_by) = self.evidence.get_mut(shard)
            {
                shown_by.get_or_insert_with(|| name.to_owned());
            }
        }
        Ok(())
    }

    /// Returns two shards that are equal in all tensors, and a tensor that is evidence of a copy.
    pub(super) fn equal_pair(&self) -> Option<(usize, usize, &str)> {
        let mut shards = self.group.iter().enumerate().filter(|(shard, first)| shard != *first);
        shards.find_map(|(shard, first)| Some((*first, shard, self.evidence.get(shard)?.as_deref()?)))
    }

    /// Returns the group of a shard if the group has several shards.
    fn in_group(&self, shard: usize) -> Option<usize> {
        let group = *self.group.get(shard)?;
        (self.group.iter().filter(|other| **other == group).count() > 1).then_some(group)
    }

    fn has_groups(&self) -> bool {
        self.group.iter().enumerate().any(|(shard, first)| shard != *first)
    }
}

/// Removes the repeated elements of expanded parts, if all parts repeat along the same dimensions.
pub(super) fn without_repeats(parts: &[Tensor]) -> Vec<Tensor> {
    let reduced: Vec<Tensor> = parts.iter().map(Tensor::without_repeats).collect();
    let alike = reduced.windows(2).all(|pair| matches!(pair, [a, b] if a.shape() == b.shape()));
    if alike { reduced } else { parts.to_vec() }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tensor::{Dtype, Storage};

    use super::*;

    fn part(bytes: Vec<u8>) -> Tensor {
        let len = bytes.len() as u64;
        Tensor::new(Dtype::UInt8, vec![len], vec![1], 0, Storage::owned(bytes)).expect("inside")
    }

    #[derive(Default)]
    struct WindowCounter(AtomicUsize);

    impl Observer for WindowCounter {
        fn is_cancelled(&self) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            false
        }
    }

    /// Returns the two equal shards, and the number of windows read.
    fn found(tensors: &[Vec<Tensor>]) -> (Option<(usize, usize, String)>, usize) {
        let mut equal = EqualShardGroups::new(tensors.first().map_or(0, Vec::len));
        let windows = WindowCounter::default();
        for (number, parts) in tensors.iter().enumerate() {
            equal.compare_parts(&number.to_string(), parts, &windows).expect("memory can be read");
        }
        let found = equal.equal_pair().map(|(first, second, tensor)| (first, second, tensor.to_owned()));
        (found, windows.0.into_inner())
    }

    #[test]
    fn a_copy_among_several_shards_is_found() {
        let (a, b, c) = (vec![1, 2], vec![3, 4], vec![5, 6]);
        let parts = |all: [&Vec<u8>; 3]| all.map(|bytes| part(bytes.clone())).to_vec();
        assert_eq!(found(&[parts([&a, &b, &c])]), (None, 3));
        assert_eq!(found(&[parts([&a, &b, &b])]).0, Some((1, 2, "0".to_owned())));
        assert_eq!(found(&[parts([&b, &a, &b])]).0, Some((0, 2, "0".to_owned())));
        // Equal in one tensor and different in another.
        assert_eq!(found(&[parts([&a, &a, &c]), parts([&a, &b, &c])]), (None, 5));
        // Only the second tensor is not constant.
        let zeros = vec![0, 0];
        assert_eq!(found(&[parts([&zeros; 3]), parts([&a, &b, &b])]).0, Some((1, 2, "1".to_owned())));
        assert_eq!(found(&[parts([&zeros; 3])]).0, None);
    }

    #[test]
    fn shards_that_differ_are_read_for_one_window() {
        let long = |first: u8| part([vec![first], vec![0; 5 << 20]].concat());
        let (result, windows) = found(&[vec![long(1), long(2)], vec![long(3), long(3)]]);
        assert_eq!((result, windows), (None, 2));
        // A difference in the last byte suffices.
        let last = |last: u8| part([vec![1], vec![0; 5 << 20], vec![last]].concat());
        assert_eq!(found(&[vec![last(1), last(2)]]).0, None);
        assert!(found(&[vec![last(1), last(1)]]).0.is_some());
    }

    #[test]
    fn what_repeats_is_read_once() {
        let expanded = |value: u8| {
            let storage = Storage::owned(vec![value, 1]);
            Tensor::new(Dtype::UInt8, vec![1 << 40, 2], vec![0, 1], 0, storage).expect("inside")
        };
        assert_eq!(found(&[vec![expanded(2), expanded(2)]]), (Some((0, 1, "0".to_owned())), 2));
        assert_eq!(found(&[vec![expanded(2), expanded(3)]]), (None, 2));
    }

    struct Stop;

    impl Observer for Stop {
        fn is_cancelled(&self) -> bool {
            true
        }
    }

    #[test]
    fn the_caller_can_stop() {
        let parts = [part(vec![1, 2]), part(vec![1, 2])];
        let error = EqualShardGroups::new(2).compare_parts("w", &parts, &Stop).expect_err("stopped");
        assert!(error.is_cancelled());
    }
}
