//! Limit on the bytes read through views that repeat bytes of their storages.
//!
//! A view of a few bytes can have 2^63 elements, and a million views can share one storage. Each storage may be read
//! once without being counted; further reads are counted over all tensors of a file.

use std::collections::HashMap;

use crate::{StorageId, Tensor};

/// Number of bytes of elements that may still be read.
///
/// ```
/// use tensor::{Budget, Dtype, Storage, Tensor};
///
/// let storage = Storage::owned(vec![0; 4]);
/// let expanded = |size| Tensor::new(Dtype::UInt8, vec![size, 4], vec![0, 1], 0, storage.clone());
/// let mut budget = Budget::new(100);
/// assert!(!budget.spend(&expanded(1 << 40)?));
/// assert!(budget.spend(&expanded(20)?), "four bytes are free, 76 of 100 are spent");
/// assert!(!budget.spend(&expanded(7)?), "24 are left");
/// assert!(budget.spend(&expanded(6)?));
/// # Ok::<(), tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Budget {
    /// Bytes that may be read more than once.
    left: u64,
    /// Bytes of each storage that were not read yet.
    unread: HashMap<StorageId, u64>,
}

impl Budget {
    /// Creates a budget of `repeated` bytes that may be read more than once.
    pub fn new(repeated: u64) -> Self {
        Self { left: repeated, unread: HashMap::new() }
    }

    /// Spends the cost of reading all elements of `tensor`. Returns false, and spends nothing, if the cost exceeds the
    /// budget.
    pub fn spend(&mut self, tensor: &Tensor) -> bool {
        let storage = tensor.storage();
        let unread = self.unread.entry(storage.id()).or_insert_with(|| storage.len());
        let repeated = tensor.nbytes().saturating_sub(*unread);
        let Some(left) = self.left.checked_sub(repeated) else { return false };
        self.left = left;
        *unread = unread.saturating_sub(tensor.nbytes());
        true
    }
}
