//! Tensors that several inputs of a batch have.

use foldhash::HashSet;
use serde::{Deserialize, Serialize};

/// Length in bytes of a tensor that is compared. Nobody stores smaller ones apart.
const NBYTES_MIN: u64 = 4096;
/// Largest number of different tensors that are remembered, in 18 MB.
const TENSORS_MAX: usize = 1 << 20;

/// Tensor that is compared with those of other inputs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TensorKey {
    /// Start of the SHA-256 of its elements.
    hash: u64,
    nbytes: u64,
}

impl TensorKey {
    /// Returns the key of a tensor with this SHA-256 and length in bytes; `None` if it is too small to be compared.
    pub fn new(sha256: &[u8; 32], nbytes: u64) -> Option<Self> {
        let hash = sha256.first_chunk::<8>().copied().map_or(0, u64::from_le_bytes);
        (nbytes >= NBYTES_MIN).then_some(Self { hash, nbytes })
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
        let keys = |tensors: &[(u8, u64)]| -> Vec<TensorKey> {
            tensors.iter().filter_map(|(first, nbytes)| TensorKey::new(&[*first; 32], *nbytes)).collect()
        };
        let mut seen = SeenTensors::default();
        let first = keys(&[(1, 4096), (2, 5000), (3, 4095)]);
        assert_eq!(first.len(), 2);
        assert_eq!(seen.repeated_bytes(&first), 0);
        assert_eq!(seen.repeated_bytes(&first), 9096);
        let second = keys(&[(2, 5000), (4, 1 << 40), (4, 1 << 40)]);
        assert_eq!(seen.repeated_bytes(&second), 5000 + (1 << 40));
    }
}
