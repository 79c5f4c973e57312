//! Numbers of ranks in a training.

/// Numbers of ranks along which the tensors are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) tensor: u64,
    pub(super) stages: u64,
    pub(super) experts: u64,
    /// Number of ranks among which the tensors of an expert are divided.
    pub(super) expert_tensor: u64,
    /// True if the embeddings are also the output matrix.
    pub(super) tied: bool,
}

impl Sizes {
    pub(super) fn ranks(&self) -> u64 {
        let experts = if self.expert_tensor == self.tensor {
            self.tensor.saturating_mul(self.experts)
        } else {
            self.tensor.max(self.experts)
        };
        experts.saturating_mul(self.stages)
    }
}
