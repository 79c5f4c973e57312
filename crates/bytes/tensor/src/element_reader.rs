//! Reads parts of tensors in any order and from several threads, and compares the checksums of the records at the end.

use std::sync::{Mutex, PoisonError};

use byte_source::{Observer, on_all_cores};
use foldhash::{HashMap, HashSet};

use crate::compute::RangeChecksums;
use crate::{Gathered, Storage, StorageId, Tensor};

/// Checksums of the storages of some tensors, collected while their elements are read.
#[derive(Debug, Default)]
pub struct RecordChecks(HashMap<StorageId, RecordCheck>);

#[derive(Debug)]
struct RecordCheck {
    storage: Storage,
    /// Checksums of the ranges read so far.
    sums: Mutex<RangeChecksums>,
}

impl RecordChecks {
    /// Collects the storages that have checksums, also those from which other storages are computed.
    pub fn new<'t>(tensors: impl Iterator<Item = &'t Tensor>) -> Self {
        let mut checks = HashMap::default();
        let mut computed = HashSet::default();
        for tensor in tensors.filter(|tensor| tensor.numel() > 0) {
            let mut left = vec![tensor.storage()];
            while let Some(storage) = left.pop() {
                match (storage.compute(), storage.checksum_range()) {
                    (Some(compute), _) if computed.insert(storage.id()) => left.extend(compute.inputs()),
                    (None, Some(whole)) => {
                        checks.entry(storage.id()).or_insert_with(|| RecordCheck {
                            storage: storage.clone(),
                            sums: Mutex::new(RangeChecksums::new(whole)),
                        });
                    }
                    _ => {}
                }
            }
        }
        Self(checks)
    }

    /// Compares the checksums of all storages on all cores. Ranges that were not read are read now.
    ///
    /// # Errors
    /// When a record is damaged or cannot be read, or `observer` stops the work.
    pub fn verify(self, observer: &dyn Observer) -> Result<(), byte_source::Error> {
        let mut checks: Vec<RecordCheck> = self.0.into_values().collect();
        checks.sort_by_key(|check| check.storage.file_offset());
        let checks: Vec<Mutex<Option<RecordCheck>>> =
            checks.into_iter().map(|check| Mutex::new(Some(check))).collect();
        on_all_cores(
            checks.len() as u64,
            || (),
            |(), number| {
                observer.check()?;
                let slot = usize::try_from(number).ok().and_then(|number| checks.get(number));
                let check = slot.and_then(|slot| slot.lock().unwrap_or_else(PoisonError::into_inner).take());
                check.map_or(Ok(()), |RecordCheck { storage, sums }| {
                    storage.verify_checksum(sums.into_inner().unwrap_or_else(PoisonError::into_inner))
                })
            },
        )
    }
}

/// Reader of the elements of one tensor in C order, from any position.
#[derive(Debug)]
pub struct ElementReader<'c> {
    gathered: Gathered,
    /// Byte offset of the elements in the storage, if they are stored there in C order.
    stored_at: Option<u64>,
    storage: Storage,
    check: Option<&'c RecordCheck>,
    sums: Option<RangeChecksums>,
}

impl<'c> ElementReader<'c> {
    /// Creates a reader that adds the checksums of what it reads to `checks` when it is dropped.
    pub fn new(tensor: &Tensor, checks: &'c RecordChecks) -> Self {
        let storage = tensor.storage().clone();
        let check = checks.0.get(&storage.id());
        let is_stored = tensor.is_contiguous() && !storage.is_computed();
        let stored_at = is_stored.then(|| tensor.span().start);
        let has_sums = stored_at.is_some() && check.is_some();
        let sums = if has_sums { storage.checksum_range().map(RangeChecksums::new) } else { None };
        Self { gathered: tensor.gathered(), stored_at, storage, check, sums }
    }

    /// Fills `out` with the bytes from `start` on, counted in C order, little-endian. The range starts and ends at elements.
    ///
    /// # Errors
    /// When the storage cannot be read.
    pub fn read(&mut self, start: u64, out: &mut [u8]) -> Result<(), byte_source::Error> {
        match self.stored_at {
            Some(first) => self.storage.read_stored(first.saturating_add(start), out, self.sums.as_mut()),
            None => self.gathered.read(start, out, &mut self.gathered.blocks()),
        }
    }
}

impl Drop for ElementReader<'_> {
    fn drop(&mut self) {
        if let (Some(check), Some(sums)) = (self.check, self.sums.take()) {
            check.sums.lock().unwrap_or_else(PoisonError::into_inner).merge(sums);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use byte_source::{BufferSource, Crc32, Region, Source};

    use super::*;
    use crate::{Checksum, Dtype};

    #[test]
    fn damage_is_found_in_whatever_order_the_elements_are_read() {
        let bytes: Vec<u8> = (0..=255).cycle().take(4000).collect();
        let mut sum = Crc32::default();
        sum.add_bytes(&bytes);
        let crc = sum.sum();
        for wrong in [0, 1] {
            let source: Arc<dyn Source> = Arc::new(BufferSource::new("x", bytes.clone()));
            let checksum = Checksum { crc: crc ^ wrong, record: "archive/data/0".into() };
            let storage = Storage::stored(Region::whole(&source), Some(checksum));
            let tensor = |shape: &[u64], stride: &[u64], offset| {
                Tensor::new(Dtype::UInt8, shape.to_vec(), stride.to_vec(), offset, storage.clone())
            };
            let tensors = [tensor(&[1000], &[1], 3000), tensor(&[20, 30], &[1, 20], 100)];
            let tensors = tensors.map(|tensor| tensor.expect("inside"));
            let checks = RecordChecks::new(tensors.iter());
            for start in [500, 0, 900] {
                let mut found = [0; 100];
                ElementReader::new(&tensors[0], &checks).read(start, &mut found).expect("in memory");
                let at = 3000 + usize::try_from(start).expect("small");
                assert_eq!(found[..], bytes[at..at + 100]);
            }
            let mut transposed = [0; 30];
            ElementReader::new(&tensors[1], &checks).read(30, &mut transposed).expect("in memory");
            assert!(transposed.iter().enumerate().all(|(n, byte)| *byte == bytes[101 + 20 * n]));
            assert_eq!(checks.verify(&()).is_ok(), wrong == 0);
        }
    }
}
