//! Rescaling of DoRA: each row or column of a weight gets a norm that was trained.
//!
//! Facts: `DoraLinearLayer` and `DoraEmbeddingLayer` in `peft/tuners/lora/dora.py` of peft 0.21.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::matrix::Matrix;

/// Norms that the rows or columns of a weight get.
#[derive(Clone, Debug)]
pub(crate) struct Magnitudes {
    /// One number for each row, or for each column.
    pub(crate) values: Matrix,
    pub(crate) axis: Axis,
    /// Frobenius norm of the change of the weight, known after the weight was read.
    pub(crate) norm: Arc<OnceLock<f64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    Rows,
    Columns,
}

/// Sums over a row or a column `w` of the weight and the change `d` of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VectorSums {
    old: f64,
    mixed: f64,
    change: f64,
    new: f64,
}

impl VectorSums {
    fn add(&mut self, old: f64, change: f64) {
        self.old += old * old;
        self.mixed += old * change;
        self.change += change * change;
        self.new += (old + change) * (old + change);
    }

    fn merge(&mut self, other: Self) {
        self.old += other.old;
        self.mixed += other.mixed;
        self.change += other.change;
        self.new += other.new;
    }
}

impl Magnitudes {
    pub(crate) fn sums(&self, olds: &[f64], changes: &[f64], columns: &Range<usize>) -> Vec<VectorSums> {
        let width = columns.len().max(1);
        let rows = olds.chunks(width).zip(changes.chunks(width));
        match self.axis {
            Axis::Rows => rows
                .map(|(olds, changes)| {
                    let mut sums = VectorSums::default();
                    olds.iter().zip(changes).for_each(|(old, change)| sums.add(*old, *change));
                    sums
                })
                .collect(),
            Axis::Columns => {
                let mut all = vec![VectorSums::default(); width];
                for (olds, changes) in rows {
                    for ((sums, old), change) in all.iter_mut().zip(olds).zip(changes) {
                        sums.add(*old, *change);
                    }
                }
                all
            }
        }
    }

    fn first_vector(&self, row: usize, columns: &Range<usize>) -> usize {
        match self.axis {
            Axis::Rows => row,
            Axis::Columns => columns.start,
        }
    }

    /// Adds the sums of an area that begins in row `row` to those of the whole weight.
    pub(crate) fn merge_sums(
        &self,
        all: &mut [VectorSums],
        row: usize,
        columns: &Range<usize>,
        sums: Vec<VectorSums>,
    ) {
        let all = all.iter_mut().skip(self.first_vector(row, columns));
        all.zip(sums).for_each(|(all, sums)| all.merge(sums));
    }

    /// Returns the factor of each row or column, and notes the norm of the change.
    ///
    /// # Errors
    /// When the magnitudes cannot be read.
    pub(crate) fn factors(&self, sums: &[VectorSums]) -> byte_source::Result<Vec<f64>> {
        let (mut squared, mut factors) = (0.0, Vec::with_capacity(sums.len()));
        for (value, sums) in self.values.read_doubles()?.into_iter().zip(sums) {
            let factor = value / sums.new.sqrt();
            // The square of `(f − 1) · w + f · d`.
            let less = factor - 1.0;
            squared +=
                less * less * sums.old + 2.0 * factor * less * sums.mixed + factor * factor * sums.change;
            factors.push(factor);
        }
        let _ = self.norm.set(squared.max(0.0).sqrt());
        Ok(factors)
    }

    pub(crate) fn rescale(&self, numbers: &mut [f64], row: usize, columns: &Range<usize>, factors: &[f64]) {
        let first = self.first_vector(row, columns);
        let factors = factors.get(first..).unwrap_or_default();
        let rows = numbers.chunks_mut(columns.len().max(1));
        match self.axis {
            Axis::Rows => {
                rows.zip(factors)
                    .for_each(|(row, factor)| row.iter_mut().for_each(|number| *number *= factor));
            }
            Axis::Columns => rows.for_each(|row| {
                row.iter_mut().zip(factors).for_each(|(number, factor)| *number *= factor);
            }),
        }
    }
}
