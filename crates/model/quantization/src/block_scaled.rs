//! Codes in rows, with a scale, and perhaps a zero point, for each block of rows and columns.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "the sizes of a tensor were compared with those of its parts when it was recognised"
)]

use std::ops::Range;

use kernels::{NIBBLES, run_nibbles};
use tensor::Inputs;

use crate::dequantized::{Area, Encoder, Kernel, Loaded, Matrices, round_to};
use crate::nibble_rows::{NibbleRows, is_suited};
use crate::operand::{ByteRows, Operand};
use crate::packed::{CodeOrder, unpack};
use crate::row_part::RowPart;
use crate::scales::ScaleGrid;

/// Codes of one to eight bits, row by row; each row begins at a byte.
#[derive(Debug)]
pub(crate) struct CodeRows {
    pub(crate) operand: Operand,
    pub(crate) bits: u32,
    pub(crate) order: CodeOrder,
    /// Distance of the rows, in bytes.
    pub(crate) pitch: u64,
    pub(crate) values: Box<[f32; 256]>,
}

/// Kernel that computes `(value − zero) · scale`.
#[derive(Debug)]
pub(crate) struct BlockScaled {
    pub(crate) codes: CodeRows,
    pub(crate) scales: ScaleGrid,
    pub(crate) zeros: Option<ScaleGrid>,
    pub(crate) block: BlockShape,
    pub(crate) matrices: Matrices,
    /// Group of each column as integers, if the columns are not grouped in order.
    pub(crate) groups: Option<Operand>,
    /// Constant that each product is multiplied by, after it is rounded to float32.
    pub(crate) factor: f32,
}

const CODES: usize = 256;
/// Numbers of a block from which on a table of all codes is faster than the arithmetic.
const TABLE_MIN: u64 = 4 * CODES as u64;

/// Number of rows and columns that have a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockShape {
    pub(crate) rows: u64,
    pub(crate) cols: u64,
}

impl BlockShape {
    fn row_blocks(self, rows: &Range<u64>) -> Range<u64> {
        blocks(rows, self.rows)
    }

    fn col_blocks(self, cols: &Range<u64>) -> Range<u64> {
        blocks(cols, self.cols)
    }
}

fn blocks(range: &Range<u64>, size: u64) -> Range<u64> {
    range.start.checked_div(size).unwrap_or(0)..range.end.div_ceil(size.max(1))
}

impl CodeRows {
    /// Returns the number of columns that begin and end at a byte together.
    fn granule(&self) -> u64 {
        match self.bits {
            8 => 1,
            4 => 2,
            _ => 8,
        }
    }

    /// Reads the bytes of rows, counted through all matrices, from a column at a byte on.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) fn load(
        &self,
        inputs: &mut Inputs<'_>,
        rows: Range<u64>,
        cols: &Range<u64>,
    ) -> byte_source::Result<Vec<u8>> {
        let bits = u64::from(self.bits);
        let byte = cols.start * bits / 8;
        let part = ByteRows {
            start: rows.start * self.pitch + byte,
            rows: rows.end - rows.start,
            pitch: self.pitch,
            len: (cols.end * bits).div_ceil(8) - byte,
        };
        self.operand.read_rows(inputs, &part)
    }
}

impl Kernel for BlockScaled {
    fn col_granule(&self) -> u64 {
        self.codes.granule()
    }

    fn load(&self, inputs: &mut Inputs<'_>, area: &Area) -> byte_source::Result<Loaded> {
        let Area { matrix, rows, cols } = area;
        let before = matrix * self.matrices.rows;
        let through = rows.start + before..rows.end + before;
        let col_blocks =
            if self.groups.is_some() { 0..self.scales.cols } else { self.block.col_blocks(cols) };
        let row_blocks = self.block.row_blocks(rows);
        let zeros = match &self.zeros {
            Some(zeros) => zeros.load(inputs, *matrix, row_blocks.clone(), col_blocks.clone())?,
            None => Vec::new(),
        };
        let groups = match &self.groups {
            Some(groups) => groups.read_integers(inputs, cols.clone())?,
            None => Vec::new(),
        };
        Ok(Loaded {
            codes: self.codes.load(inputs, through, cols)?,
            scales: self.scales.load(inputs, *matrix, row_blocks, col_blocks)?,
            zeros,
            groups,
            ..Loaded::default()
        })
    }

    fn decode(&self, loaded: &Loaded, area: &Area, row: usize, out: &mut [f32]) {
        let within = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let width = out.len();
        let row_bytes = (width * self.codes.bits as usize).div_ceil(8);
        let codes = loaded.codes.get(row * row_bytes..).unwrap_or_default();
        let codes = codes.get(..row_bytes).unwrap_or_default();
        let unpacked;
        let codes = if self.codes.bits == 8 {
            codes
        } else {
            unpacked = unpack(codes, self.codes.bits, self.codes.order, width);
            &unpacked
        };
        let row_block = (area.rows.start + row as u64).checked_div(self.block.rows).unwrap_or(0);
        let row_block = row_block - self.block.row_blocks(&area.rows).start;
        let values = &self.codes.values;
        let value = |code: u8| values.get(usize::from(code)).copied().unwrap_or_default();
        if self.groups.is_some() {
            let grid_row = within(row_block) * within(self.scales.cols);
            let scales = loaded.scales.get(grid_row..).unwrap_or_default();
            let zeros = loaded.zeros.get(grid_row..).unwrap_or_default();
            for ((out, code), group) in out.iter_mut().zip(codes).zip(&loaded.groups) {
                let at = *group as usize;
                let zero = zeros.get(at).copied().unwrap_or_default();
                *out = (value(*code) - zero) * scales.get(at).copied().unwrap_or(f32::NAN) * self.factor;
            }
            return;
        }
        let col_blocks = self.block.col_blocks(&area.cols);
        let grid_width = within(col_blocks.end - col_blocks.start);
        let grid_row = within(row_block) * grid_width;
        let scales = loaded.scales.get(grid_row..).unwrap_or_default();
        let mut zeros = loaded.zeros.get(grid_row..).unwrap_or_default().iter();
        let into_block = area.cols.start.checked_rem(self.block.cols).unwrap_or(0);
        let first = within(self.block.cols - into_block).min(width);
        let (mut out, mut codes, mut len) = (out, codes, first);
        for scale in scales.iter().take(grid_width) {
            let zero = zeros.next().copied().unwrap_or_default();
            let (now, later) = out.split_at_mut_checked(len).unwrap_or_default();
            let (now_codes, later_codes) = codes.split_at_checked(len).unwrap_or_default();
            for (out, code) in now.iter_mut().zip(now_codes) {
                *out = (value(*code) - zero) * *scale * self.factor;
            }
            (out, codes) = (later, later_codes);
            len = within(self.block.cols).min(out.len());
        }
    }

    fn decode_by_table(
        &self,
        loaded: &Loaded,
        area: &Area,
        place: (usize, usize),
        encoder: Encoder,
        out: &mut [u8],
    ) -> bool {
        let within = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let cols = within(area.cols.end - area.cols.start);
        if self.codes.bits == 4 {
            return self.decode_nibbles(loaded, area, (place, cols), encoder, out);
        }
        let block_size = self.block.rows.saturating_mul(self.block.cols.min(cols as u64));
        if encoder.size() != 2 || self.codes.bits != 8 || self.groups.is_some() || block_size < TABLE_MIN {
            return false;
        }
        let first_row_block = self.block.row_blocks(&area.rows).start;
        let col_blocks = self.block.col_blocks(&area.cols);
        let grid_width = within(col_blocks.end - col_blocks.start);
        let row_block = |part: &RowPart<'_>| {
            let row = area.rows.start + part.row as u64;
            within(row.checked_div(self.block.rows).unwrap_or(0) - first_row_block)
        };
        let mut table = [[[0; 2]; CODES]];
        for rows in
            RowPart::split(place, cols, out).chunk_by_mut(|one, other| row_block(one) == row_block(other))
        {
            let grid_row = rows.first().map_or(0, row_block) * grid_width;
            for (at, block) in (grid_row..).zip(col_blocks.clone()).take(grid_width) {
                let scale = loaded.scales.get(at).copied().unwrap_or(f32::NAN);
                let zero = loaded.zeros.get(at).copied().unwrap_or_default();
                let mut numbers = self.codes.values.map(|value| (value - zero) * scale * self.factor);
                encoder.encode_tables(&mut numbers, &mut table);
                let [table] = &table;
                let column = |col: u64| within(col.saturating_sub(area.cols.start)).min(cols);
                let first = block.saturating_mul(self.block.cols);
                let columns = column(first)..column(first.saturating_add(self.block.cols));
                for row in &mut *rows {
                    let before = row.row * cols;
                    let (col, out) = row.columns(&columns);
                    let codes = loaded.codes.get(before + col..).unwrap_or_default();
                    for (out, code) in out.iter_mut().zip(codes) {
                        *out = table.get(usize::from(*code)).copied().unwrap_or_default();
                    }
                }
            }
        }
        true
    }
}

impl BlockScaled {
    /// Computes numbers whose codes have four bits, if each row has scales of its own.
    fn decode_nibbles(
        &self,
        loaded: &Loaded,
        area: &Area,
        (place, cols): ((usize, usize), usize),
        encoder: Encoder,
        out: &mut [u8],
    ) -> bool {
        let Ok(group) = usize::try_from(self.block.cols) else { return false };
        let is_whole = area.cols.start.checked_rem(self.block.cols) == Some(0) && cols.is_multiple_of(2);
        let is_suited = self.block.rows == 1 && is_suited(group) && self.groups.is_none();
        if encoder.size() != 2 || !is_whole || !is_suited {
            return false;
        }
        let width = cols.div_ceil(group.max(1));
        let fill = |row: usize, numbers: &mut [[f32; NIBBLES]]| {
            let scales = loaded.scales.get(row * width..).unwrap_or_default();
            let mut zeros = loaded.zeros.get(row * width..).unwrap_or_default().iter();
            for (numbers, scale) in numbers.iter_mut().zip(scales) {
                let zero = zeros.next().copied().unwrap_or_default();
                for (number, value) in numbers.iter_mut().zip(self.codes.values.iter()) {
                    *number = (value - zero) * scale * self.factor;
                }
            }
        };
        let parts = RowPart::split(place, cols, out);
        let (codes, order) = (&loaded.codes, self.codes.order);
        run_nibbles(NibbleRows { codes, order, cols, group, encoder, parts, fill });
        true
    }
}

impl ScaleGrid {
    /// Reads the scales of blocks of a matrix, row by row, as the method's library computes them.
    pub(crate) fn load(
        &self,
        inputs: &mut Inputs<'_>,
        matrix: u64,
        rows: Range<u64>,
        cols: Range<u64>,
    ) -> byte_source::Result<Vec<f32>> {
        let before = matrix * self.rows * u64::from(!self.is_shared);
        let rows = rows.start + before..rows.end + before;
        let mut scales = self.read(inputs, rows, cols)?;
        if let Some(global) = &self.global {
            global.apply(inputs, matrix, &mut scales)?;
            round_to(global.rounding, &mut scales);
        }
        Ok(scales)
    }
}
