//! Weights to which products of low rank are added, and whose rows or columns are rescaled.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use byte_source::ReadError;
use tensor::{Compute, Dtype, Inputs, Storage};

use crate::matrix::Matrix;
use crate::product::{Factors, add_product};
use crate::round;

/// Numbers that are computed together, in addition to the rest of a row.
const SEGMENT: usize = 1 << 14;

/// Product of low rank that is added to some rows of a block.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    /// Rows of the block.
    pub(crate) rows: Range<u64>,
    /// One row for each of `rows`.
    pub(crate) left: Matrix,
    /// One column for each column of the block.
    pub(crate) right: Matrix,
    pub(crate) scale: f64,
}

impl Term {
    /// Returns the square of the Frobenius norm of the product, which is the sum of the elementwise product of `LᵀL` and `RRᵀ`.
    ///
    /// # Errors
    /// When a factor cannot be read.
    pub(crate) fn squared_norm(&self) -> Result<f64, ReadError> {
        let rank = usize::try_from(self.right.rows()).map_err(|_| std::io::ErrorKind::InvalidData)?;
        let columns = usize::try_from(self.right.columns()).map_err(|_| std::io::ErrorKind::InvalidData)?;
        let (left, right) = (self.left.read()?, self.right.read()?);
        let mut of_left = vec![0.0_f64; rank.saturating_mul(rank)];
        for row in left.chunks_exact(rank.max(1)) {
            for (sums, factor) in of_left.chunks_exact_mut(rank).zip(row) {
                sums.iter_mut()
                    .zip(row)
                    .for_each(|(sum, other)| *sum += f64::from(*factor) * f64::from(*other));
            }
        }
        let rows: Vec<&[f32]> = right.chunks_exact(columns.max(1)).collect();
        let mut squared = 0.0;
        for (sums, first) in of_left.chunks_exact(rank.max(1)).zip(&rows) {
            for (sum, second) in sums.iter().zip(&rows) {
                let products = first.iter().zip(*second).map(|(a, b)| f64::from(*a) * f64::from(*b));
                squared += sum * products.sum::<f64>();
            }
        }
        Ok(squared.max(0.0) * self.scale * self.scale)
    }
}

/// Rescaling of DoRA: each row or column gets a norm that was trained.
#[derive(Debug)]
pub(crate) struct Magnitudes {
    /// One number for each row, or for each column.
    pub(crate) values: Matrix,
    pub(crate) axis: Axis,
}

/// Direction of the vectors that DoRA rescales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    Rows,
    Columns,
}

/// Factors of the blocks that were read last; all weights of a merge share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct FactorCache(Arc<Mutex<Vec<LoadedBlock>>>);

/// Block of a weight with its terms in memory.
type LoadedBlock = (FactorKey, Arc<Vec<LoadedTerm>>);

/// Number of a weight, and of a block in it.
type FactorKey = (usize, u64);

impl FactorCache {
    /// Blocks that are kept: a window can end in one and begin in the next.
    const KEPT: usize = 2;

    fn get(&self, key: FactorKey, terms: &[Term]) -> Result<Arc<Vec<LoadedTerm>>, ReadError> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = kept.iter().find(|(known, _)| *known == key) {
            return Ok(Arc::clone(found));
        }
        kept.truncate(Self::KEPT.saturating_sub(1));
        let loaded: Result<Vec<LoadedTerm>, ReadError> = terms.iter().map(LoadedTerm::read).collect();
        let loaded = Arc::new(loaded?);
        kept.insert(0, (key, Arc::clone(&loaded)));
        Ok(loaded)
    }
}

#[derive(Debug)]
struct LoadedTerm {
    rows: Range<u64>,
    left: Vec<f32>,
    right: Vec<f32>,
    rank: usize,
    scale: f64,
}

impl LoadedTerm {
    fn read(term: &Term) -> Result<Self, ReadError> {
        let rank = usize::try_from(term.right.rows()).map_err(|_| std::io::ErrorKind::InvalidData)?;
        let (left, right) = (term.left.read()?, term.right.read()?);
        Ok(Self { rows: term.rows.clone(), left, right, rank, scale: term.scale })
    }
}

/// Weight with changes of low rank, in the dtype of the weight.
#[derive(Debug)]
pub(crate) struct LowRankUpdate {
    number: usize,
    base: Storage,
    dtype: Dtype,
    rows_per_block: u64,
    columns: u64,
    blocks: Vec<Vec<Term>>,
    magnitudes: Option<Magnitudes>,
    /// Factors of DoRA, one for each row or column, from the first read on.
    rescales: OnceLock<Vec<f64>>,
    cache: FactorCache,
    /// Sum of the squares of all changes that were computed, if the weight is rescaled.
    squared_change: Mutex<f64>,
}

/// Dimensions of a weight as a list of matrices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WeightDims {
    pub(crate) rows_per_block: u64,
    pub(crate) columns: u64,
}

impl LowRankUpdate {
    /// Creates the update of a contiguous weight. `blocks` has the terms of each matrix of the weight.
    pub(crate) fn new(
        (base, dtype): (Storage, Dtype),
        dims: WeightDims,
        blocks: Vec<Vec<Term>>,
        magnitudes: Option<Magnitudes>,
        cache: FactorCache,
    ) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            base,
            dtype,
            rows_per_block: dims.rows_per_block.max(1),
            columns: dims.columns.max(1),
            blocks,
            magnitudes,
            rescales: OnceLock::new(),
            cache,
            squared_change: Mutex::new(0.0),
        }
    }

    /// Returns the Frobenius norm of the changes that were computed so far, if the weight is rescaled.
    pub(crate) fn computed_norm(&self) -> Option<f64> {
        self.magnitudes.as_ref()?;
        Some(self.squared_change.lock().unwrap_or_else(PoisonError::into_inner).sqrt())
    }

    /// Returns the end of the segment that starts at element `at`: whole rows of one block with the same terms, or the
    /// rest of a row.
    fn segment_end(&self, at: u64, end: u64) -> u64 {
        let row = at.checked_div(self.columns).unwrap_or(0);
        let row_end = row.saturating_add(1).saturating_mul(self.columns);
        if !at.is_multiple_of(self.columns) || row_end > end {
            return row_end.min(end);
        }
        let block = row.checked_div(self.rows_per_block).unwrap_or(0);
        let block_start = block.saturating_mul(self.rows_per_block);
        let terms = usize::try_from(block).ok().and_then(|block| self.blocks.get(block));
        let edges = terms.into_iter().flatten().flat_map(|term| [term.rows.start, term.rows.end]);
        let edges = edges.map(|edge| block_start.saturating_add(edge)).filter(|edge| *edge > row);
        let next = edges.fold(block_start.saturating_add(self.rows_per_block), u64::min);
        let most = (SEGMENT as u64).checked_div(self.columns).unwrap_or(0).max(1);
        let rows_in_window = end.checked_div(self.columns).unwrap_or(0);
        next.min(row.saturating_add(most)).min(rows_in_window).saturating_mul(self.columns)
    }

    /// Adds the products to the numbers of a segment that starts at element `at`.
    fn add_terms(&self, sums: &mut [f64], at: u64) -> Result<(), ReadError> {
        let invalid = || ReadError::from(std::io::ErrorKind::InvalidData);
        let (row, column) = (at.checked_div(self.columns), at.checked_rem(self.columns));
        let (row, column) = row.zip(column).ok_or_else(invalid)?;
        let block = row.checked_div(self.rows_per_block).ok_or_else(invalid)?;
        let within = row.checked_rem(self.rows_per_block).ok_or_else(invalid)?;
        let terms = usize::try_from(block).ok().and_then(|block| self.blocks.get(block));
        let Some(terms) = terms.filter(|terms| !terms.is_empty()) else { return Ok(()) };
        let width = usize::try_from(self.columns).map_err(|_| invalid())?;
        let first = usize::try_from(column).map_err(|_| invalid())?;
        let columns = width.saturating_sub(first).min(sums.len());
        let rows = sums.len().checked_div(columns.max(1)).unwrap_or(0);
        for term in self.cache.get((self.number, block), terms)?.iter() {
            if !term.rows.contains(&within) {
                continue;
            }
            let from = usize::try_from(within.saturating_sub(term.rows.start)).map_err(|_| invalid())?;
            let from = from.saturating_mul(term.rank);
            let left = term.left.get(from..from.saturating_add(rows.saturating_mul(term.rank)));
            let left = left.ok_or_else(invalid)?;
            let factors = Factors { left, right: &term.right, rank: term.rank, scale: term.scale };
            add_product(factors, sums, columns, (first, width));
        }
        Ok(())
    }

    /// Returns the factors of DoRA, after one pass over the weight.
    fn rescales(&self, inputs: &mut Inputs<'_>) -> Result<Option<&[f64]>, ReadError> {
        let Some(magnitudes) = &self.magnitudes else { return Ok(None) };
        if let Some(known) = self.rescales.get() {
            return Ok(Some(known));
        }
        let values = magnitudes.values.read()?;
        let mut squares = vec![0.0_f64; values.len()];
        let size = self.dtype.size();
        let len = self.base.len().checked_div(size).unwrap_or(0);
        let columns = usize::try_from(self.columns).map_err(|_| std::io::ErrorKind::InvalidData)?;
        let (mut at, mut bytes, mut sums) = (0, Vec::new(), Vec::new());
        while at < len {
            let end = self.segment_end(at, len);
            let nbytes = usize::try_from(end.saturating_sub(at).saturating_mul(size));
            bytes.resize(nbytes.map_err(|_| std::io::ErrorKind::InvalidData)?, 0);
            inputs.read(0, &mut bytes, at.saturating_mul(size))?;
            widen(self.dtype, &bytes, &mut sums)?;
            self.add_terms(&mut sums, at)?;
            let row = at.checked_div(self.columns).and_then(|row| usize::try_from(row).ok());
            for (index, row_sums) in sums.chunks(columns).enumerate() {
                match magnitudes.axis {
                    Axis::Rows => {
                        let row = row.map(|row| row.saturating_add(index));
                        if let Some(square) = row.and_then(|row| squares.get_mut(row)) {
                            *square += row_sums.iter().map(|sum| sum * sum).sum::<f64>();
                        }
                    }
                    Axis::Columns => {
                        squares.iter_mut().zip(row_sums).for_each(|(square, sum)| *square += sum * sum);
                    }
                }
            }
            at = end;
        }
        let norms = values.iter().zip(&squares).map(|(value, square)| f64::from(*value) / square.sqrt());
        Ok(Some(self.rescales.get_or_init(|| norms.collect())))
    }

    /// Multiplies the numbers of a segment by the factors of DoRA, and adds the squares of their changes.
    fn rescale(&self, sums: &mut [f64], at: u64, rescales: &[f64], old: &[f64]) {
        let Some(magnitudes) = &self.magnitudes else { return };
        let (Some(row), Some(column)) = (at.checked_div(self.columns), at.checked_rem(self.columns)) else {
            return;
        };
        let place = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let columns = place(self.columns).saturating_sub(place(column)).max(1);
        for (index, row_sums) in sums.chunks_mut(columns).enumerate() {
            match magnitudes.axis {
                Axis::Rows => {
                    let factor = rescales.get(place(row).saturating_add(index)).copied().unwrap_or(f64::NAN);
                    for sum in row_sums.iter_mut() {
                        *sum *= factor;
                    }
                }
                Axis::Columns => {
                    let factors = rescales.get(place(column)..).unwrap_or_default();
                    row_sums.iter_mut().zip(factors).for_each(|(sum, factor)| *sum *= factor);
                }
            }
        }
        let change: f64 = sums.iter().zip(old).map(|(new, old)| (new - old) * (new - old)).sum();
        *self.squared_change.lock().unwrap_or_else(PoisonError::into_inner) += change;
    }
}

impl Compute for LowRankUpdate {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn inputs(&self) -> &[Storage] {
        std::slice::from_ref(&self.base)
    }

    fn granule(&self) -> u64 {
        self.dtype.size()
    }

    fn read_at(&self, inputs: &mut Inputs<'_>, buffer: &mut [u8], offset: u64) -> Result<(), ReadError> {
        let size = self.dtype.size();
        let invalid = std::io::ErrorKind::InvalidInput;
        let rescales = self.rescales(inputs)?;
        inputs.read(0, buffer, offset)?;
        let start = offset.checked_div(size).ok_or(invalid)?;
        let end = start.saturating_add((buffer.len() as u64).checked_div(size).ok_or(invalid)?);
        let (mut at, mut rest, mut sums) = (start, buffer, Vec::new());
        while at < end {
            let next = self.segment_end(at, end);
            let nbytes =
                usize::try_from(next.saturating_sub(at).saturating_mul(size)).map_err(|_| invalid)?;
            let (segment, after) = rest.split_at_mut_checked(nbytes).ok_or(invalid)?;
            widen(self.dtype, segment, &mut sums)?;
            let old = rescales.map(|_| sums.clone()).unwrap_or_default();
            self.add_terms(&mut sums, at)?;
            if let Some(rescales) = rescales {
                self.rescale(&mut sums, at, rescales, &old);
            }
            narrow(self.dtype, &sums, segment);
            (at, rest) = (next, after);
        }
        Ok(())
    }
}

/// Widens little-endian floating-point numbers to doubles.
pub(crate) fn widen(dtype: Dtype, bytes: &[u8], numbers: &mut Vec<f64>) -> Result<(), ReadError> {
    numbers.clear();
    let halves = bytes.as_chunks::<2>().0.iter().map(|half| u16::from_le_bytes(*half));
    match dtype {
        Dtype::BFloat16 => numbers.extend(halves.map(round::from_bf16)),
        Dtype::Float16 => numbers.extend(halves.map(round::from_f16)),
        Dtype::Float32 => {
            let singles = bytes.as_chunks().0.iter();
            numbers.extend(singles.map(|single| f64::from(f32::from_le_bytes(*single))));
        }
        Dtype::Float64 => {
            numbers.extend(bytes.as_chunks().0.iter().map(|double| f64::from_le_bytes(*double)));
        }
        _ => return Err(std::io::ErrorKind::Unsupported.into()),
    }
    Ok(())
}

/// Rounds doubles to little-endian numbers of a dtype that [`widen`] reads.
pub(crate) fn narrow(dtype: Dtype, numbers: &[f64], bytes: &mut [u8]) {
    match dtype {
        Dtype::BFloat16 => {
            let halves = bytes.as_chunks_mut::<2>().0.iter_mut().zip(numbers);
            halves.for_each(|(half, number)| *half = round::to_bf16(*number).to_le_bytes());
        }
        Dtype::Float16 => {
            let halves = bytes.as_chunks_mut::<2>().0.iter_mut().zip(numbers);
            halves.for_each(|(half, number)| *half = round::to_f16(*number).to_le_bytes());
        }
        Dtype::Float32 => {
            let singles = bytes.as_chunks_mut::<4>().0.iter_mut().zip(numbers);
            singles.for_each(|(single, number)| *single = round::to_f32(*number).to_le_bytes());
        }
        _ => {
            let doubles = bytes.as_chunks_mut::<8>().0.iter_mut().zip(numbers);
            doubles.for_each(|(double, number)| *double = number.to_le_bytes());
        }
    }
}
