//! Codes in rows, with a scale and a bias for each group of columns: MLX, and Metal of `transformers`.

use kernels::{NIBBLES, run_nibbles};
use tensor::{Dtype, Inputs};

use crate::block_scaled::CodeRows;
use crate::dequantized::{Area, Encoder, Kernel, Loaded, round_to};
use crate::nibble_rows::{NibbleRows, is_suited};
use crate::packed::{CodeOrder, unpack};
use crate::row_part::RowPart;
use crate::scales::ScaleGrid;

/// Kernel that computes `code · scale + bias`.
#[derive(Debug)]
pub(crate) struct AffineRows {
    pub(crate) codes: CodeRows,
    pub(crate) scales: ScaleGrid,
    pub(crate) biases: ScaleGrid,
    pub(crate) group: u64,
    /// Rows of a matrix.
    pub(crate) rows: u64,
    /// Dtype that the product is rounded to.
    pub(crate) dtype: Dtype,
}

/// Columns that cannot be read apart: as many as the smallest group but one, whose codes of any bits are whole words.
const GRANULE: u64 = 32;

impl AffineRows {
    /// Applies the number of each group to the columns of a row.
    fn each_group(&self, area: &Area, numbers: &[f32], out: &mut [f32], apply: impl Fn(&mut f32, f32)) {
        let within = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let into = area.cols.start.checked_rem(self.group).unwrap_or(0);
        let (mut rest, mut len) = (out, within(self.group.saturating_sub(into)));
        for number in numbers {
            let (now, later) = rest.split_at_mut(len.min(rest.len()));
            for value in now {
                apply(value, *number);
            }
            (rest, len) = (later, within(self.group));
        }
    }
}

impl Kernel for AffineRows {
    fn col_granule(&self) -> u64 {
        GRANULE
    }

    fn load(&self, inputs: &mut Inputs<'_>, area: &Area) -> byte_source::Result<Loaded> {
        let Area { matrix, rows, cols } = area;
        let groups = cols.start.checked_div(self.group).unwrap_or(0)..cols.end.div_ceil(self.group.max(1));
        let before = matrix.saturating_mul(self.rows);
        let through = rows.start.saturating_add(before)..rows.end.saturating_add(before);
        Ok(Loaded {
            codes: self.codes.load(inputs, through, cols)?,
            scales: self.scales.load(inputs, *matrix, rows.clone(), groups.clone())?,
            zeros: self.biases.load(inputs, *matrix, rows.clone(), groups)?,
            ..Loaded::default()
        })
    }

    fn decode(&self, loaded: &Loaded, area: &Area, row: usize, out: &mut [f32]) {
        let rows = usize::try_from(area.rows.end.saturating_sub(area.rows.start)).unwrap_or(1).max(1);
        let part = |all: usize| all.checked_div(rows).unwrap_or(0);
        let of_row = |all: &'_ [f32]| -> Vec<f32> {
            let width = part(all.len());
            all.iter().skip(row.saturating_mul(width)).take(width).copied().collect()
        };
        let width = part(loaded.codes.len());
        let codes = loaded.codes.get(row.saturating_mul(width)..).unwrap_or_default();
        let codes = codes.get(..width).unwrap_or_default();
        let codes = unpack_bytes(codes, self.codes.bits, out.len());
        for (out, code) in out.iter_mut().zip(&codes) {
            *out = f32::from(*code);
        }
        self.each_group(area, &of_row(&loaded.scales), out, |value, scale| *value *= scale);
        round_to(self.dtype, out);
        self.each_group(area, &of_row(&loaded.zeros), out, |value, bias| *value += bias);
    }

    fn decode_by_table(
        &self,
        loaded: &Loaded,
        area: &Area,
        place: (usize, usize),
        encoder: Encoder,
        out: &mut [u8],
    ) -> bool {
        let (Ok(group), Ok(cols)) =
            (usize::try_from(self.group), usize::try_from(area.cols.end.saturating_sub(area.cols.start)))
        else {
            return false;
        };
        let is_whole = area.cols.start.checked_rem(self.group) == Some(0);
        if encoder.size() != 2 || self.codes.bits != 4 || !is_suited(group) || !is_whole {
            return false;
        }
        let width = cols.div_ceil(group.max(1));
        let factors = |row: usize| {
            let first = row.saturating_mul(width);
            let scales = loaded.scales.iter().skip(first);
            scales.copied().zip(loaded.zeros.iter().skip(first).copied())
        };
        let fill = |row: usize, numbers: &mut [[f32; NIBBLES]]| {
            for (numbers, (scale, _)) in numbers.iter_mut().zip(factors(row)) {
                for (number, value) in numbers.iter_mut().zip(self.codes.values.iter()) {
                    *number = value * scale;
                }
            }
            round_to(self.dtype, numbers.as_flattened_mut());
            for (numbers, (_, bias)) in numbers.iter_mut().zip(factors(row)) {
                for number in numbers {
                    *number += bias;
                }
            }
        };
        let parts = RowPart::split(place, cols, out);
        let order = CodeOrder::LowFirst;
        run_nibbles(NibbleRows { codes: &loaded.codes, order, cols, group, encoder, parts, fill });
        true
    }
}

fn unpack_bytes(codes: &[u8], bits: u32, count: usize) -> Vec<u8> {
    if bits == 8 { codes.to_vec() } else { unpack(codes, bits, CodeOrder::LowFirst, count) }
}
