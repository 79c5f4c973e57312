//! Codes of a matrix whose parts are stacked in words: a word holds the codes of a column in rows that are far apart, as HQQ and
//! quanto pack along dimension 0.

use std::ops::Range;

use tensor::{Dtype, Inputs};

use crate::dequantized::{Area, Kernel, Loaded, round_to};
use crate::operand::{ByteRows, Operand};
use crate::scales::ScaleGrid;

/// Kernel over a matrix of which each stored row has the codes of several rows: row `r` is the part `r / stored_rows` of the
/// stored row `r % stored_rows`.
#[derive(Debug)]
pub(crate) struct StackedRows {
    pub(crate) operand: Operand,
    /// Bytes of a word: 1 or 4.
    pub(crate) word: u64,
    /// Shift of the codes of each part.
    pub(crate) shifts: Vec<u32>,
    pub(crate) mask: u8,
    pub(crate) stored_rows: u64,
    pub(crate) cols: u64,
    /// Scales of the rows, of the columns, or of the matrix.
    pub(crate) scales: ScaleGrid,
    pub(crate) zeros: ScaleGrid,
    pub(crate) arithmetic: Arithmetic,
    /// Dtype to which scales, zero points and each intermediate result are rounded.
    pub(crate) dtype: Dtype,
}

/// Order of the two operations on a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    /// `(code − zero) · scale`.
    SubtractFirst,
    /// `code · scale − zero`.
    MultiplyFirst,
    /// `(code − zero) · scale`, with a difference that wraps around as an int8.
    Wrapping,
}

impl StackedRows {
    /// Returns the part that a row is in, and its stored row.
    fn place(&self, row: u64) -> (u64, u64) {
        (row.checked_div(self.stored_rows).unwrap_or(0), row.checked_rem(self.stored_rows).unwrap_or(0))
    }

    fn load_grid(
        &self,
        grid: &ScaleGrid,
        inputs: &mut Inputs<'_>,
        area: &Area,
    ) -> byte_source::Result<Vec<f32>> {
        let range = |of: &Range<u64>, count: u64| if count == 1 { 0..1 } else { of.clone() };
        let mut numbers = grid.read(inputs, range(&area.rows, grid.rows), range(&area.cols, grid.cols))?;
        round_to(self.dtype, &mut numbers);
        Ok(numbers)
    }
}

/// Calls `apply` with each number and the value of a grid for it: one for each number, or one for all.
fn each(out: &mut [f32], grid: &[f32], apply: impl Fn(f32, f32) -> f32) {
    if let [single] = grid {
        for out in out {
            *out = apply(*out, *single);
        }
    } else {
        for (out, value) in out.iter_mut().zip(grid) {
            *out = apply(*out, *value);
        }
    }
}

fn row_values<'l>(grid: &ScaleGrid, loaded: &'l [f32], row: usize) -> &'l [f32] {
    if grid.rows == 1 { loaded } else { loaded.get(row..).and_then(|rest| rest.get(..1)).unwrap_or_default() }
}

impl Kernel for StackedRows {
    fn col_granule(&self) -> u64 {
        1
    }

    fn load(&self, inputs: &mut Inputs<'_>, area: &Area) -> byte_source::Result<Loaded> {
        let width = area.cols.end.saturating_sub(area.cols.start);
        let mut codes = Vec::new();
        let mut row = area.rows.start;
        while row < area.rows.end {
            let (_, stored) = self.place(row);
            let count = self.stored_rows.saturating_sub(stored).min(area.rows.end.saturating_sub(row)).max(1);
            let part = ByteRows {
                start: stored
                    .saturating_mul(self.cols)
                    .saturating_add(area.cols.start)
                    .saturating_mul(self.word),
                rows: count,
                pitch: self.cols.saturating_mul(self.word),
                len: width.saturating_mul(self.word),
            };
            codes.append(&mut self.operand.read_rows(inputs, &part)?);
            row = row.saturating_add(count);
        }
        Ok(Loaded {
            codes,
            scales: self.load_grid(&self.scales, inputs, area)?,
            zeros: self.load_grid(&self.zeros, inputs, area)?,
            ..Loaded::default()
        })
    }

    fn decode(&self, loaded: &Loaded, area: &Area, row: usize, out: &mut [f32]) {
        let word = usize::try_from(self.word).unwrap_or(1);
        let row_bytes = out.len().saturating_mul(word);
        let codes = loaded.codes.get(row.saturating_mul(row_bytes)..).unwrap_or_default();
        let (part, _) = self.place(area.rows.start.saturating_add(row as u64));
        let shift = usize::try_from(part).ok().and_then(|part| self.shifts.get(part)).copied().unwrap_or(0);
        if word == 1 {
            for (out, byte) in out.iter_mut().zip(codes) {
                *out = f32::from(byte.checked_shr(shift).unwrap_or(0) & self.mask);
            }
        } else {
            for (out, word) in out.iter_mut().zip(codes.as_chunks::<4>().0) {
                let [low, ..] = u32::from_le_bytes(*word).checked_shr(shift).unwrap_or(0).to_le_bytes();
                *out = f32::from(low & self.mask);
            }
        }
        let scales = row_values(&self.scales, &loaded.scales, row);
        let zeros = row_values(&self.zeros, &loaded.zeros, row);
        match self.arithmetic {
            Arithmetic::SubtractFirst => {
                each(out, zeros, |code, zero| code - zero);
                round_to(self.dtype, out);
                each(out, scales, |difference, scale| difference * scale);
            }
            Arithmetic::MultiplyFirst => {
                each(out, scales, |code, scale| code * scale);
                round_to(self.dtype, out);
                each(out, zeros, |product, zero| product - zero);
            }
            Arithmetic::Wrapping => {
                each(out, zeros, |code, zero| (code - zero + 128.0).rem_euclid(256.0) - 128.0);
                each(out, scales, |difference, scale| difference * scale);
            }
        }
    }
}
