//! Rows of a call that have a cache of their own.

/// Rows of a call with one cache: `count` new tokens of each sequence, of `total` in the cache at the end of the call.
pub(crate) struct SequencePart {
    pub(crate) batch: usize,
    pub(crate) count: usize,
    pub(crate) total: usize,
}
