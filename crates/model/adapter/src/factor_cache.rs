//! Factors of the products that were added last, in memory.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "it parses nothing: sizes are those of numbers in memory"
)]

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::float_parts;
use crate::matrix::Matrix;
use crate::panels::Panels;
use crate::term::Term;

/// Numbers of a left factor that are in memory together.
const CHUNK: u64 = 1 << 20;

/// Factors of the blocks that were read last; all weights of a merge share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct FactorCache(Arc<Mutex<Vec<KeptBlock>>>);

type KeptBlock = (FactorKey, Arc<LoadedBlock>);

/// Number of a weight, and of a block in it.
pub(crate) type FactorKey = (usize, u64);

impl FactorCache {
    /// Blocks that are kept: windows that are computed side by side can be in different ones.
    const KEPT: usize = 3;

    /// Returns the block of a key, whose products are `terms`.
    ///
    /// # Errors
    /// When a factor cannot be read.
    pub(crate) fn get(&self, key: FactorKey, terms: &[Term]) -> byte_source::Result<Arc<LoadedBlock>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = kept.iter().find(|(known, _)| *known == key) {
            return Ok(Arc::clone(found));
        }
        kept.truncate(Self::KEPT - 1);
        let terms: byte_source::Result<Vec<LoadedTerm>> = terms.iter().map(LoadedTerm::read).collect();
        let loaded = Arc::new(LoadedBlock { terms: terms?, ..LoadedBlock::default() });
        kept.insert(0, (key, Arc::clone(&loaded)));
        Ok(loaded)
    }
}

#[derive(Debug, Default)]
pub(crate) struct LoadedBlock {
    pub(crate) terms: Vec<LoadedTerm>,
    sums: AtomicUsize,
    /// Sums that single precision left open.
    repeated: AtomicUsize,
}

impl LoadedBlock {
    /// Sums after which the share of repeated ones counts.
    const SAMPLE: usize = 1 << 14;

    pub(crate) fn count(&self, sums: usize, repeated: usize) {
        self.sums.fetch_add(sums, Ordering::Relaxed);
        self.repeated.fetch_add(repeated, Ordering::Relaxed);
    }

    /// Returns true if double precision is faster because too many sums were computed twice.
    pub(crate) fn prefers_double(&self) -> bool {
        let (sums, repeated) = (self.sums.load(Ordering::Relaxed), self.repeated.load(Ordering::Relaxed));
        sums > Self::SAMPLE && repeated * 16 > sums
    }
}

/// Product of two factors: the whole right one is in memory, and the rows of the left one that were read last.
#[derive(Debug)]
pub(crate) struct LoadedTerm {
    pub(crate) rows: Range<u64>,
    pub(crate) right: Panels,
    pub(crate) scale: f64,
    left: Matrix,
    /// True if a factor has numbers of float64, so that both are in parts.
    is_double: bool,
    /// Rows of the left factor that were read last, and the first of them.
    chunk: Mutex<Option<(u64, Arc<Vec<f32>>)>>,
}

impl LoadedTerm {
    fn read(term: &Term) -> byte_source::Result<Self> {
        let rank = usize::try_from(term.right.rows()).map_err(|_| std::io::ErrorKind::InvalidData)?;
        let is_double = term.left.is_double() || term.right.is_double();
        let right = if is_double {
            let parts = float_parts::split_right(&term.right.read_doubles()?)?;
            Panels::pack(&parts, rank * float_parts::PAIRS.len())
        } else {
            Panels::pack(&term.right.read()?, rank)
        };
        let (left, chunk) = (term.left.clone(), Mutex::default());
        Ok(Self { rows: term.rows.clone(), right, scale: term.scale, left, is_double, chunk })
    }

    fn chunk_rows(&self) -> u64 {
        CHUNK.checked_div(self.right.rank() as u64).unwrap_or(1).max(1)
    }

    /// Returns the end of the rows of the block that are in memory together with row `row`, which has a product.
    pub(crate) fn chunk_end(&self, row: u64) -> u64 {
        let chunks = (row - self.rows.start) / self.chunk_rows() + 1;
        (self.rows.start + chunks * self.chunk_rows()).min(self.rows.end)
    }

    /// Returns rows of the left factor, and the number of those before row `row` of the block.
    ///
    /// # Errors
    /// When the factor cannot be read.
    pub(crate) fn left(&self, row: u64) -> byte_source::Result<(Arc<Vec<f32>>, usize)> {
        let invalid = std::io::ErrorKind::InvalidData;
        let within = row - self.rows.start;
        let before = within % self.chunk_rows();
        let first = within - before;
        let skipped = usize::try_from(before).map_err(|_| invalid)?;
        let mut chunk = self.chunk.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, rows)) = chunk.as_ref()
            && *known == first
        {
            return Ok((Arc::clone(rows), skipped));
        }
        let end = (first + self.chunk_rows()).min(self.left.rows());
        let rows = self.left.rows_in(&(first..end)).ok_or(invalid)?;
        let rows = if self.is_double {
            let rank = usize::try_from(rows.columns()).map_err(|_| invalid)?;
            float_parts::split_left(&rows.read_doubles()?, rank)?
        } else {
            rows.read()?
        };
        let rows = Arc::new(rows);
        *chunk = Some((first, Arc::clone(&rows)));
        Ok((rows, skipped))
    }
}
