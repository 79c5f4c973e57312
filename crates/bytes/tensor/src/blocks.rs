//! Block cache for short reads that are scattered over a storage.
//!
//! A view that is not contiguous needs a few bytes from each of many places. A system call for each place would take a
//! hundred times as long as the copy, and the neighbouring bytes are needed soon.

use std::io;

use foldhash::{HashMap, HashMapExt};

use crate::Storage;

/// Largest total size of cached blocks in bytes.
const CACHED_BYTES_MAX: usize = 8 << 20;
/// Size of the largest block in bytes.
const BLOCK_BYTES_MAX: usize = 64 << 10;
/// Size of the smallest block in bytes: a system call that reads one takes as long as copying a few hundred bytes.
const BLOCK_BYTES_MIN: usize = 256;
/// Distance in bytes from which runs are read separately.
const FAR_BYTES: u64 = 4 << 10;

/// Cached blocks of a storage, little-endian. All ranges are in bytes of the storage and start and end at components.
#[derive(Debug)]
pub(crate) struct BlockCache<'s> {
    storage: &'s Storage,
    /// Length of the storage in bytes.
    len: u64,
    /// Size of a block in bytes, a power of two; 0 if blocks do not help.
    size: usize,
    /// Offset in `bytes` of each cached block, by block number.
    kept: HashMap<usize, usize>,
    bytes: Vec<u8>,
    /// Number of the block that was used last, and its offset in `bytes`.
    last: Option<(usize, usize)>,
}

impl<'s> BlockCache<'s> {
    /// Creates the cache for a view whose runs of `run` bytes are at the places that `outer` counts: sizes and strides
    /// in bytes, the innermost last.
    pub(crate) fn new(storage: &'s Storage, run: u64, outer: &[(u64, u64)]) -> Self {
        let size = block_size(run, outer).unwrap_or(0);
        Self { storage, len: storage.len(), size, kept: HashMap::new(), bytes: Vec::new(), last: None }
    }

    /// Copies the bytes from `start` on into `out`.
    pub(crate) fn read(&mut self, start: usize, out: &mut [u8]) -> Result<(), byte_source::Error> {
        if out.len() >= self.size {
            return self.storage.read(start as u64, out);
        }
        if start.saturating_add(out.len()) as u64 > self.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (mut start, mut out) = (start, out);
        while !out.is_empty() {
            let number = start.checked_div(self.size).unwrap_or(0);
            let within = start.saturating_sub(number.saturating_mul(self.size));
            let len = self.size.saturating_sub(within).min(out.len());
            let at = self.block_offset(number)?.saturating_add(within);
            let (now, rest) = out.split_at_mut(len);
            let from = self.bytes.get(at..at.saturating_add(len)).ok_or(io::ErrorKind::UnexpectedEof)?;
            now.copy_from_slice(from);
            start = start.saturating_add(len);
            out = rest;
        }
        Ok(())
    }

    /// Returns the offset of a block in `bytes`, after reading the block if it is not cached.
    fn block_offset(&mut self, number: usize) -> Result<usize, byte_source::Error> {
        if let Some((last, at)) = self.last
            && last == number
        {
            return Ok(at);
        }
        let at = match self.kept.get(&number) {
            Some(at) => *at,
            None => self.fetch_block(number)?,
        };
        self.last = Some((number, at));
        Ok(at)
    }

    fn fetch_block(&mut self, number: usize) -> Result<usize, byte_source::Error> {
        if self.bytes.len().saturating_add(self.size) > CACHED_BYTES_MAX {
            // Most views have passed the older blocks by now.
            self.kept.clear();
            self.bytes.clear();
        }
        let start = number.saturating_mul(self.size);
        let left = self.len.saturating_sub(start as u64);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(self.size);
        let at = self.bytes.len();
        self.bytes.resize(at.saturating_add(self.size), 0);
        let block = self.bytes.get_mut(at..at.saturating_add(len)).unwrap_or_default();
        self.last = None;
        self.storage.read(start as u64, block)?;
        self.kept.insert(number, at);
        Ok(at)
    }
}

/// Returns the block size in bytes at which the cache holds a block for each place that the view visits in turn; `None`
/// if no two runs are near each other, or there are too many places.
fn block_size(run: u64, outer: &[(u64, u64)]) -> Option<usize> {
    // Runs are nearest to each other along `nearest`. The dimensions further in count the places visited in turn.
    let (nearest, (_, step)) = outer.iter().enumerate().rev().min_by_key(|(_, (_, stride))| *stride)?;
    let places = outer.get(nearest.saturating_add(1)..).unwrap_or_default();
    let number = places.iter().fold(1_u64, |product, (size, _)| product.saturating_mul(*size));
    let extent = places
        .iter()
        .fold(run, |sum, (size, stride)| sum.saturating_add(size.saturating_sub(1).saturating_mul(*stride)));
    if *step >= FAR_BYTES || run >= FAR_BYTES {
        return None;
    }
    let dense = usize::try_from(dense_extent(run, outer)).unwrap_or(usize::MAX);
    let mut size = dense
        .checked_next_power_of_two()
        .map_or(BLOCK_BYTES_MAX, |size| size.clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX));
    loop {
        let blocks = number.min(extent.checked_div(size as u64).unwrap_or(0).saturating_add(2));
        if blocks.saturating_mul(size as u64) <= CACHED_BYTES_MAX as u64 / 2 {
            return Some(size);
        }
        size /= 2;
        if size < BLOCK_BYTES_MIN {
            return None;
        }
    }
}

/// Returns the extent in bytes of the runs that are near their neighbours, from the first to the last.
fn dense_extent(run: u64, outer: &[(u64, u64)]) -> u64 {
    let mut dims = outer.to_vec();
    dims.sort_unstable_by_key(|(_, stride)| *stride);
    let mut extent = run;
    for (size, stride) in dims {
        if stride > extent.saturating_mul(4).max(FAR_BYTES) {
            break;
        }
        extent = extent.saturating_add(size.saturating_sub(1).saturating_mul(stride));
    }
    extent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_large_as_the_places_allow() {
        const KIB: usize = 1 << 10;
        // Every other number; a column of a wide matrix.
        assert_eq!(block_size(4, &[(1_000_000, 8)]), Some(64 * KIB));
        assert_eq!(block_size(4, &[(1_000_000, 16_384)]), None);
        // Transposed matrices: one block for each row of the original.
        assert_eq!(block_size(4, &[(512, 4), (512, 2048)]), Some(64 * KIB));
        assert_eq!(block_size(4, &[(4096, 4), (4096, 16_384)]), Some(KIB));
        assert_eq!(block_size(4, &[(1 << 20, 4), (1 << 20, 4 << 20)]), None);
        // Kernels of a convolution with the channels last: all of a kernel's places are in one block.
        assert_eq!(block_size(4, &[(512, 18_432), (512, 4), (3, 6144), (3, 2048)]), Some(64 * KIB));
        // Pairs that are far from each other.
        assert_eq!(block_size(4, &[(1_000_000, 100_000), (2, 8)]), Some(256));
        // Only the smallest blocks fit for this many places.
        assert_eq!(block_size(4, &[(10_000, 4), (10_000, 16_384)]), Some(256));
        // Repeated elements, and sizes that no file has.
        assert_eq!(block_size(4, &[(1000, 0), (1000, 0)]), Some(256));
        assert_eq!(block_size(4, &[(u64::MAX, 4), (u64::MAX, u64::MAX), (u64::MAX, u64::MAX)]), None);
        assert_eq!(block_size(8192, &[(10, 10_000)]), None);
    }

    #[test]
    fn runs_are_near_each_other_up_to_a_distance() {
        assert_eq!(dense_extent(4, &[(2, FAR_BYTES)]), 4 + FAR_BYTES);
        assert_eq!(dense_extent(4, &[(2, FAR_BYTES + 1)]), 4);
    }

    #[test]
    fn blocks_are_kept_up_to_the_budget() {
        let storage = Storage::owned(vec![7; CACHED_BYTES_MAX + BLOCK_BYTES_MAX]);
        let mut blocks = BlockCache::new(&storage, 4, &[(1_000_000, 8)]);
        let all = CACHED_BYTES_MAX / BLOCK_BYTES_MAX;
        for number in 0..all {
            blocks.read(number * BLOCK_BYTES_MAX, &mut [0; 4]).expect("it is inside");
        }
        assert_eq!(
            (blocks.size, blocks.kept.len(), blocks.bytes.len()),
            (BLOCK_BYTES_MAX, all, CACHED_BYTES_MAX)
        );
        blocks.read(CACHED_BYTES_MAX, &mut [0; 4]).expect("it is inside");
        assert_eq!((blocks.kept.len(), blocks.bytes.len()), (1, BLOCK_BYTES_MAX));
    }

    #[test]
    fn any_range_is_what_the_storage_has() {
        let bytes: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).take(1_000_001).collect();
        let storage = Storage::owned(bytes.clone());
        let mut blocks = BlockCache::new(&storage, 4, &[(4096, 4), (4096, 16_384)]);
        let mut at = 1_usize;
        for step in 0..20_000_usize {
            at = (at * 48_271 + step) % 1_000_001;
            let mut out = vec![0; (step % 1500).min(1_000_001 - at)];
            blocks.read(at, &mut out).expect("it is inside");
            assert_eq!(out, bytes[at..at + out.len()], "{at}");
        }
        blocks.read(999_000, &mut [0; 1002]).expect_err("past the end");
        blocks.read(1_000_000, &mut [0; 2]).expect_err("past the end");
    }
}
