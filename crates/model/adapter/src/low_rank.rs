//! Weights to which products of low rank are added, and whose rows or columns are rescaled.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "it parses nothing: sizes are those of numbers in memory"
)]

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use byte_source::WINDOW;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use tensor::{Compute, Dtype, Inputs, Storage};

use crate::factor_cache::{FactorCache, LoadedBlock};
use crate::half_sums;
use crate::magnitudes::{Magnitudes, VectorSums};
use crate::numbers::{narrow, widen};
use crate::product::{Factors, add_product};
use crate::term::Term;

/// Numbers that one thread computes together.
const TASK: usize = 1 << 16;
/// Rows that one thread computes together are a multiple of this number, so that no registers are empty.
const TASK_ROWS: usize = 6;
/// Numbers below which one thread computes them alone.
const PARALLEL_MIN: usize = 1 << 15;

#[derive(Debug)]
pub(crate) struct LowRankUpdate {
    number: usize,
    base: Storage,
    base_dtype: Dtype,
    dtype: Dtype,
    dims: WeightDims,
    blocks: Vec<Vec<Term>>,
    magnitudes: Option<Magnitudes>,
    /// Factors of DoRA, one for each row or column, from the first read on.
    rescales: OnceLock<Vec<f64>>,
    cache: FactorCache,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WeightDims {
    pub(crate) rows_per_block: u64,
    pub(crate) columns: u64,
}

struct SegmentTerms {
    block: Option<Arc<LoadedBlock>>,
    /// For each product of the block that changes the rows: its position, rows of its left factor, and how many of those come
    /// before the segment.
    lefts: Vec<(usize, Arc<Vec<f32>>, usize)>,
}

/// Rows of a segment, or a part of a row, with their numbers as bytes: those of the base, and those of the result.
struct Task<'t> {
    old: Option<&'t [u8]>,
    new: &'t mut [u8],
    terms: Arc<SegmentTerms>,
    /// First row, in the weight and in the segment.
    row: usize,
    row_in_segment: usize,
    rows: usize,
    columns: Range<usize>,
}

impl LowRankUpdate {
    /// Creates the update of a contiguous weight, with results of the dtype `dtype`. `blocks` has the terms of each matrix of
    /// the weight.
    pub(crate) fn new(
        (base, base_dtype, dtype): (Storage, Dtype, Dtype),
        dims: WeightDims,
        blocks: Vec<Vec<Term>>,
        magnitudes: Option<Magnitudes>,
        cache: FactorCache,
    ) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            base,
            base_dtype,
            dtype,
            dims: WeightDims { rows_per_block: dims.rows_per_block.max(1), columns: dims.columns.max(1) },
            blocks,
            magnitudes,
            rescales: OnceLock::new(),
            cache,
        }
    }

    fn numel(&self) -> u64 {
        self.base.len() / self.base_dtype.size()
    }

    /// Returns the end of the segment that starts at element `at`: whole rows of one block with the same products, or the rest of
    /// a row; and the products.
    fn segment(&self, at: u64, end: u64) -> byte_source::Result<(u64, SegmentTerms)> {
        let WeightDims { rows_per_block, columns } = self.dims;
        let row = at / columns;
        let (number, within) = (row / rows_per_block, row % rows_per_block);
        let terms = usize::try_from(number).ok().and_then(|number| self.blocks.get(number));
        let mut segment = SegmentTerms { block: None, lefts: Vec::new() };
        // The end of the rows in the block.
        let mut edge = rows_per_block;
        if let Some(terms) = terms.filter(|terms| !terms.is_empty()) {
            let block = self.cache.get((self.number, number), terms)?;
            for (position, term) in block.terms.iter().enumerate() {
                if term.rows.contains(&within) {
                    let (left, before) = term.left(within)?;
                    segment.lefts.push((position, left, before));
                    edge = edge.min(term.chunk_end(within));
                } else if within < term.rows.start {
                    edge = edge.min(term.rows.start);
                }
            }
            segment.block = Some(block);
        }
        let row_end = (row + 1) * columns;
        if !at.is_multiple_of(columns) || row_end > end {
            return Ok((row_end.min(end), segment));
        }
        let rows = (row + edge - within).min(end / columns);
        Ok((rows * columns, segment))
    }

    fn tasks<'t>(
        &self,
        at: u64,
        mut old: Option<&'t [u8]>,
        mut new: &'t mut [u8],
    ) -> byte_source::Result<Vec<Task<'t>>> {
        let place = |n: u64| usize::try_from(n).map_err(|_| byte_source::Error::from(ErrorKind::InvalidData));
        let invalid = || byte_source::Error::from(ErrorKind::InvalidInput);
        let (size, old_size) = (place(self.dtype.size())?, place(self.base_dtype.size())?);
        let width = self.dims.columns;
        let (mut tasks, mut at) = (Vec::new(), at);
        let end = at + (new.len() / size) as u64;
        while at < end {
            let (segment_end, terms) = self.segment(at, end)?;
            let terms = Arc::new(terms);
            let first_row = at / width;
            let mut column = place(at % width)?;
            let (mut row, mut left) = (0, place(segment_end - at)?);
            // Whole rows, if the segment is not a part of a row.
            let row_len = left.min(place(width)? - column).max(1);
            let rows = (TASK / row_len).next_multiple_of(TASK_ROWS);
            while left > 0 {
                let count = if row_len > TASK { TASK.min(row_len) } else { rows * row_len };
                // A long row is split into parts, which end with the row.
                let in_row = place(width)? - column;
                let count = if row_len > TASK { count.min(in_row) } else { count }.min(left);
                let (part, rest) = new.split_at_mut_checked(count * size).ok_or_else(invalid)?;
                let old_part = match old {
                    Some(bytes) => {
                        let split = bytes.split_at_checked(count * old_size);
                        let (part, rest) = split.ok_or_else(invalid)?;
                        old = Some(rest);
                        Some(part)
                    }
                    None => None,
                };
                let columns = column..column + count.min(row_len);
                let terms = Arc::clone(&terms);
                let weight_row = place(first_row)? + row;
                tasks.push(Task {
                    old: old_part,
                    new: part,
                    terms,
                    row: weight_row,
                    row_in_segment: row,
                    rows: count / columns.len(),
                    columns,
                });
                (new, left) = (rest, left - count);
                if row_len > TASK {
                    column += count;
                    if column >= place(width)? {
                        (column, row) = (0, row + 1);
                    }
                } else {
                    row += count / row_len;
                }
            }
            at = segment_end;
        }
        Ok(tasks)
    }

    /// Returns the factors of DoRA, after one pass over the weight.
    fn rescales(&self, inputs: &mut Inputs<'_>) -> byte_source::Result<Option<&[f64]>> {
        let Some(magnitudes) = &self.magnitudes else { return Ok(None) };
        if let Some(known) = self.rescales.get() {
            return Ok(Some(known));
        }
        let count = usize::try_from(magnitudes.values.columns()).map_err(|_| ErrorKind::InvalidData)?;
        let mut all = vec![VectorSums::default(); count];
        let size = self.base_dtype.size();
        let step = WINDOW as u64 / size;
        let (mut at, mut bytes, mut new) = (0, Vec::new(), Vec::new());
        while at < self.numel() {
            let end = (at + step).min(self.numel());
            let numbers = usize::try_from(end - at).map_err(|_| ErrorKind::InvalidData)?;
            let place = |size: u64| usize::try_from(size).map(|size| size * numbers);
            bytes.resize(place(size).map_err(|_| ErrorKind::InvalidData)?, 0);
            new.resize(place(self.dtype.size()).map_err(|_| ErrorKind::InvalidData)?, 0);
            inputs.read(0, &mut bytes, at * size)?;
            let sums = |task: Task<'_>| {
                let (mut olds, mut changes) = (Vec::new(), Vec::new());
                widen(self.base_dtype, task.old.unwrap_or_default(), &mut olds)?;
                changes.resize(olds.len(), 0.0);
                task.add_products(&mut changes);
                let sums = magnitudes.sums(&olds, &changes, &task.columns);
                Ok((task.row, task.columns, sums))
            };
            for (row, columns, sums) in run(self.tasks(at, Some(&bytes), &mut new)?, numbers, sums)? {
                magnitudes.merge_sums(&mut all, row, &columns, sums);
            }
            at = end;
        }
        let factors = magnitudes.factors(&all)?;
        Ok(Some(self.rescales.get_or_init(|| factors)))
    }

    fn compute(&self, task: &mut Task<'_>, rescales: Option<&[f64]>) -> byte_source::Result<()> {
        if let Some(block) = &task.terms.block
            && rescales.is_none()
            && task.old.is_none()
            && !block.prefers_double()
        {
            let factors = task.terms.factors(task.row_in_segment, task.rows);
            if half_sums::is_supported(self.dtype, factors.iter().map(|factors| factors.scale)) {
                let (numbers, columns) = (task.new.len() / 2, task.columns.clone());
                let repeated = half_sums::add_products(self.dtype, &factors, task.new, columns);
                block.count(numbers, repeated);
                return Ok(());
            }
        }
        if task.terms.lefts.is_empty() && rescales.is_none() && task.old.is_none() {
            return Ok(());
        }
        let mut sums = Vec::new();
        widen(self.base_dtype, task.old.unwrap_or(&*task.new), &mut sums)?;
        task.add_products(&mut sums);
        if let (Some(magnitudes), Some(rescales)) = (&self.magnitudes, rescales) {
            magnitudes.rescale(&mut sums, task.row, &task.columns, rescales);
        }
        narrow(self.dtype, &sums, task.new);
        Ok(())
    }
}

impl SegmentTerms {
    fn factors(&self, first: usize, rows: usize) -> Vec<Factors<'_>> {
        let Some(block) = &self.block else { return Vec::new() };
        let mut factors = Vec::with_capacity(self.lefts.len());
        for (position, left, before) in &self.lefts {
            let Some(term) = block.terms.get(*position) else { continue };
            let rank = term.right.rank();
            let start = (before + first) * rank;
            let left = left.get(start..start + rows * rank);
            factors.push(Factors { left: left.unwrap_or_default(), right: &term.right, scale: term.scale });
        }
        factors
    }
}

impl Task<'_> {
    fn add_products(&self, sums: &mut [f64]) {
        for factors in self.terms.factors(self.row_in_segment, self.rows) {
            add_product(factors, sums, self.columns.clone());
        }
    }
}

fn run<'t, R: Send>(
    tasks: Vec<Task<'t>>,
    numbers: usize,
    compute: impl Fn(Task<'t>) -> byte_source::Result<R> + Send + Sync,
) -> byte_source::Result<Vec<R>> {
    if numbers < PARALLEL_MIN {
        return tasks.into_iter().map(compute).collect();
    }
    tasks.into_par_iter().map(compute).collect()
}

impl Compute for LowRankUpdate {
    fn len(&self) -> u64 {
        self.numel() * self.dtype.size()
    }

    fn inputs(&self) -> &[Storage] {
        std::slice::from_ref(&self.base)
    }

    fn granule(&self) -> u64 {
        self.dtype.size()
    }

    fn is_costly(&self) -> bool {
        // Windows side by side would each compute the factors of DoRA, which need the whole weight.
        self.magnitudes.is_none()
    }

    fn read_at(&self, inputs: &mut Inputs<'_>, buffer: &mut [u8], offset: u64) -> byte_source::Result<()> {
        let invalid = ErrorKind::InvalidInput;
        let rescales = self.rescales(inputs)?;
        let start = offset / self.dtype.size();
        let size = usize::try_from(self.dtype.size()).map_err(|_| invalid)?;
        let numbers = buffer.len() / size;
        let mut bytes = Vec::new();
        let old = if self.base_dtype == self.dtype {
            inputs.read(0, buffer, offset)?;
            None
        } else {
            let size = usize::try_from(self.base_dtype.size()).map_err(|_| invalid)?;
            bytes.resize(numbers * size, 0);
            inputs.read(0, &mut bytes, start * self.base_dtype.size())?;
            Some(bytes.as_slice())
        };
        run(self.tasks(start, old, buffer)?, numbers, |mut task| self.compute(&mut task, rescales))?;
        Ok(())
    }
}
