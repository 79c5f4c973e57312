//! Storages that tensors share, and their bytes as an archive holds them: PyTorch's archives have one record for each
//! storage, however many tensors view it.
//!
//! Facts: `get_storage_from_record` in `torch/csrc/jit/python/init.cpp` and `readInstruction` in
//! `torch/csrc/jit/serialization/unpickler.cpp`. A record shorter than its persistent id says is read past its end.

use byte_source::{Blob, Sink, Window};
use foldhash::{HashMap, HashMapExt};

use crate::{Storage, StorageId, Tensor};

/// Distinct storages of some tensors, in the order in which the tensors first view them. The source has them in this
/// order, and a file is read fastest from its start to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageSet {
    /// Number of the first tensor over each storage.
    pub first: Vec<u32>,
    /// Number of the storage of each tensor.
    pub by_tensor: Vec<u32>,
}

impl StorageSet {
    /// Collects the storages of `tensors`; `None` if there are more tensors than 32 bits count.
    pub fn new<'t>(tensors: impl ExactSizeIterator<Item = &'t Tensor>) -> Option<Self> {
        u32::try_from(tensors.len()).ok()?;
        let mut all = Self { first: Vec::new(), by_tensor: Vec::with_capacity(tensors.len()) };
        let mut known: HashMap<StorageId, u32> = HashMap::with_capacity(tensors.len());
        for (position, tensor) in (0..).zip(tensors) {
            // At most as many storages as tensors.
            let next = u32::try_from(all.first.len()).ok()?;
            let number = *known.entry(tensor.storage().id()).or_insert(next);
            if number == next {
                all.first.push(position);
            }
            all.by_tensor.push(number);
        }
        Some(all)
    }
}

/// Whole elements of a storage, as an archive holds them.
///
/// Bytes of an incomplete last element are left out. No tensor reaches them, and a record has as many bytes as its
/// elements.
#[derive(Clone, Copy, Debug)]
pub struct WholeElements<'s> {
    storage: &'s Storage,
    size: u64,
}

impl<'s> WholeElements<'s> {
    /// Selects the whole elements of `size` bytes in `storage`.
    pub fn new(storage: &'s Storage, size: u64) -> Self {
        Self { storage, size }
    }

    /// Returns the number of whole elements.
    pub fn count(&self) -> u64 {
        self.storage.len().checked_div(self.size).unwrap_or(0)
    }

    /// Returns the number of bytes after the last whole element, which are not sent.
    pub fn trailing_bytes(&self) -> u64 {
        self.storage.len().saturating_sub(self.len())
    }
}

impl Blob for WholeElements<'_> {
    fn len(&self) -> u64 {
        self.count().saturating_mul(self.size)
    }

    fn write_to(&self, sink: &mut dyn Sink) -> Result<(), byte_source::Error> {
        if self.trailing_bytes() == 0 {
            self.storage.write_to(sink)
        } else {
            self.storage.write_to(&mut TruncatingSink { left: self.len(), sink })
        }
    }
}

/// Sink that passes on the first `left` bytes and drops the rest.
struct TruncatingSink<'s> {
    left: u64,
    sink: &'s mut dyn Sink,
}

impl Sink for TruncatingSink<'_> {
    fn write(&mut self, window: Window) -> Result<(), byte_source::Error> {
        let window = match usize::try_from(self.left).ok().and_then(|left| window.get(..left)) {
            Some(first) => Window::owned(first.to_vec()),
            None => window,
        };
        self.left = self.left.saturating_sub(window.len() as u64);
        if window.is_empty() { Ok(()) } else { self.sink.write(window) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use byte_source::{MappedFile, Place, RecordDamaged, Region, Source};

    use super::*;
    use crate::{Checksum, Dtype};

    struct Ignore;

    impl Sink for Ignore {
        fn write(&mut self, _: Window) -> Result<(), byte_source::Error> {
            Ok(())
        }
    }

    #[test]
    fn damage_names_the_storage() {
        let path = std::env::temp_dir().join(format!("tensor-damaged-{}", std::process::id()));
        std::fs::write(&path, [7; 9]).expect("the temporary folder is writable");
        let file: Arc<dyn Source> = Arc::new(MappedFile::open(&path).expect("the file was just written"));
        std::fs::remove_file(&path).expect("the file was just written");
        // Whole elements, and a storage that ends in the middle of one.
        for len in [8, 9] {
            let checksum = Checksum { crc: 1, record: "archive/data/0".into() };
            let region = Region::new(&file, 0..len).expect("inside the file");
            let storage = Storage::stored(region, Some(checksum));
            let elements = WholeElements::new(&storage, 2);
            assert_eq!((elements.count(), elements.len(), elements.trailing_bytes()), (4, 8, len - 8));
            let error = elements.write_to(&mut Ignore).expect_err("its checksum is not 1");
            assert!(error.to_string().contains(": record `archive/data/0` is damaged: "), "{error}");
            assert_eq!(error.detail::<RecordDamaged>().expect("it is damage").expected, 1);
            assert!(storage.reads_record(&error.location()), "{len}");
            assert!(!storage.reads_record(&Place::file(&path)));
        }
    }

    #[test]
    fn half_an_element_is_not_sent() {
        struct Collect(Vec<u8>);

        impl Sink for Collect {
            fn write(&mut self, window: Window) -> Result<(), byte_source::Error> {
                self.0.extend_from_slice(&window);
                Ok(())
            }
        }

        for len in [8, 9] {
            let storage = Storage::owned((0..len).collect());
            let mut sent = Collect(Vec::new());
            WholeElements::new(&storage, 2).write_to(&mut sent).expect("memory can be read");
            assert_eq!(sent.0, (0..8).collect::<Vec<u8>>(), "{len}");
        }
    }

    #[test]
    fn a_storage_counts_once() {
        let view = |storage: &Storage| {
            Tensor::new(Dtype::Int8, vec![2], vec![1], 0, storage.clone()).expect("inside its storage")
        };
        let [a, b] = [0, 1].map(|byte| Storage::owned(vec![byte; 2]));
        let tensors = [view(&b), view(&a), view(&b), view(&a)];
        let shared = StorageSet::new(tensors.iter()).expect("four tensors");
        assert_eq!((shared.first, shared.by_tensor), (vec![0, 1], vec![0, 1, 0, 1]));
    }
}
