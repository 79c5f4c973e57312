//! Tensors that several inputs of a batch have.

use foldhash::HashSet;
use open::TensorContent;
use serde::{Deserialize, Serialize};

/// Length in bytes of a tensor that is compared. Nobody stores smaller ones apart.
const NBYTES_MIN: u64 = 4096;
/// Largest number of different tensors that are remembered, in 18 MB.
const TENSORS_MAX: usize = 1 << 20;

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct TensorKey {
    /// Start of the SHA-256 of its elements.
    hash: u64,
    nbytes: u64,
}

impl TensorKey {
    /// Returns the keys of the tensors that are compared.
    pub(crate) fn of_contents(contents: &[TensorContent]) -> Vec<Self> {
        let large = contents.iter().filter(|content| content.nbytes >= NBYTES_MIN);
        let key = |content: &TensorContent| {
            let hash = content.sha256.first_chunk::<8>().copied().map_or(0, u64::from_le_bytes);
            Self { hash, nbytes: content.nbytes }
        };
        large.map(key).collect()
    }
}

/// Tensors of the results so far.
#[derive(Debug, Default)]
pub(crate) struct SeenTensors {
    hashes: HashSet<u64>,
}

impl SeenTensors {
    /// Returns the length in bytes of the tensors that were there before, and remembers the others while there is room.
    pub(crate) fn repeated_bytes(&mut self, tensors: &[TensorKey]) -> u64 {
        let mut repeated = 0_u64;
        for tensor in tensors {
            if self.hashes.contains(&tensor.hash) {
                repeated = repeated.saturating_add(tensor.nbytes);
            } else if self.hashes.len() < TENSORS_MAX {
                self.hashes.insert(tensor.hash);
            }
        }
        repeated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_known_tensors_are_counted() {
        let content = |first, nbytes| TensorContent { sha256: [first; 32], nbytes };
        let mut seen = SeenTensors::default();
        let first = TensorKey::of_contents(&[content(1, 4096), content(2, 5000), content(3, 4095)]);
        assert_eq!(first.len(), 2);
        assert_eq!(seen.repeated_bytes(&first), 0);
        assert_eq!(seen.repeated_bytes(&first), 9096);
        let second = TensorKey::of_contents(&[content(2, 5000), content(4, 1 << 40), content(4, 1 << 40)]);
        assert_eq!(seen.repeated_bytes(&second), 5000 + (1 << 40));
    }
}
