//! Grids of scales and zero points: numbers, exponents, packed integers, or numbers that are quantized themselves.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "the sizes of a tensor were compared with those of its parts when it was recognised"
)]

use std::io;
use std::ops::Range;

use tensor::{Dtype, Inputs};

use crate::dequantized::round_to;
use crate::operand::{ByteRows, Operand};
use crate::packed::{CodeOrder, unpack};

/// Scales or zero points of a tensor: one for each block of rows and columns of each matrix.
#[derive(Debug)]
pub(crate) struct ScaleGrid {
    pub(crate) operand: Operand,
    /// Number of blocks along the rows and columns of a matrix.
    pub(crate) rows: u64,
    pub(crate) cols: u64,
    pub(crate) encoding: ScaleEncoding,
    /// True if all matrices have the same grid.
    pub(crate) is_shared: bool,
    pub(crate) global: Option<GlobalScale>,
    /// Number of all scales, if the last row of the grid is incomplete.
    pub(crate) elements: Option<u64>,
}

/// Encoding of the numbers in a grid.
#[derive(Debug)]
pub(crate) enum ScaleEncoding {
    /// Numbers of the operand's dtype.
    Numbers,
    /// Exponents of two in a byte, 127 for 1.
    Exponents,
    /// Integers of few bits, packed along the rows of the grid, the lowest bits first: bit `i` of a column is in its word
    /// `i / 32`. `offset` is added.
    PackedRows { bits: u32, offset: f32 },
    /// Codes for values of a table, times the number of their block, plus an offset.
    Nested(Box<NestedScales>),
    /// Integers, divided by the number of their block, plus a mean.
    Quotients(Box<QuotientScales>),
    /// Numbers in the order of tensor cores: tiles of 128 rows and 4 columns, each as 32 rows of four rows' columns, which
    /// are 32 rows apart.
    Tiled,
}

/// Scales that are quantized in blocks themselves, as bitsandbytes does.
#[derive(Debug)]
pub(crate) struct NestedScales {
    pub(crate) table: Operand,
    pub(crate) scales: Operand,
    pub(crate) block: u64,
    pub(crate) offset: f32,
}

/// Scales that are quantized in blocks themselves, as torchao's `NF4Tensor` does.
#[derive(Debug)]
pub(crate) struct QuotientScales {
    pub(crate) divisors: Operand,
    pub(crate) block: u64,
    pub(crate) mean: Operand,
    /// Dtype in which the library has the quotient and the sum.
    pub(crate) rounding: Dtype,
}

/// Rows and columns of a tile, and its elements.
const TILE_ROWS: u64 = 128;
const TILE_COLS: u64 = 4;
const TILE: u64 = TILE_ROWS * TILE_COLS;

/// Scale of a whole matrix or tensor that applies to the scales of its blocks.
#[derive(Debug)]
pub(crate) struct GlobalScale {
    pub(crate) operand: Operand,
    /// True if the tensor has one number for each matrix.
    pub(crate) per_matrix: bool,
    pub(crate) divides: bool,
    /// Number that the scale is divided by before; 1 for most methods.
    pub(crate) unit: f32,
    /// Dtype in which the library has the quotient or product.
    pub(crate) rounding: Dtype,
}

impl ScaleGrid {
    /// Creates a grid of numbers of the operand's dtype, or of exponents if they are bytes.
    pub(crate) fn numbers(operand: Operand, (rows, cols): (u64, u64)) -> Self {
        let encoding =
            if operand.dtype() == Dtype::UInt8 { ScaleEncoding::Exponents } else { ScaleEncoding::Numbers };
        Self { operand, rows, cols, encoding, is_shared: false, global: None, elements: None }
    }

    /// Creates a grid of numbers of the operand's dtype.
    pub(crate) fn plain(operand: Operand, (rows, cols): (u64, u64)) -> Self {
        Self {
            operand,
            rows,
            cols,
            encoding: ScaleEncoding::Numbers,
            is_shared: false,
            global: None,
            elements: None,
        }
    }

    pub(crate) fn read(
        &self,
        inputs: &mut Inputs<'_>,
        rows: Range<u64>,
        cols: Range<u64>,
    ) -> byte_source::Result<Vec<f32>> {
        match &self.encoding {
            ScaleEncoding::Numbers if self.elements.is_some() => {
                self.operand.read_floats(inputs, self.flat(&rows, &cols))
            }
            ScaleEncoding::Numbers => self.operand.read_grid(inputs, self.cols, rows, cols),
            ScaleEncoding::Exponents => {
                let mut scales = self.operand.read_grid(inputs, self.cols, rows, cols)?;
                for scale in &mut scales {
                    *scale = (*scale - 127.0).exp2();
                }
                Ok(scales)
            }
            ScaleEncoding::PackedRows { bits, offset } => {
                self.read_packed(inputs, rows, cols, *bits, *offset)
            }
            ScaleEncoding::Nested(nested) => nested.read(inputs, &self.operand, self.flat(&rows, &cols)),
            ScaleEncoding::Quotients(quotients) => {
                quotients.read(inputs, &self.operand, self.flat(&rows, &cols))
            }
            ScaleEncoding::Tiled => self.read_tiled(inputs, rows, cols),
        }
    }

    /// Returns the range of a list of scales that has all of these rows and columns: of whole rows, or of one row.
    fn flat(&self, rows: &Range<u64>, cols: &Range<u64>) -> Range<u64> {
        let at = |row: u64, col: u64| row * self.cols + col;
        let end = at(rows.end - 1, cols.end).min(self.elements.unwrap_or(u64::MAX));
        at(rows.start, cols.start).min(end)..end
    }

    /// Reads numbers in tiles; whole rows of tiles are read at once.
    fn read_tiled(
        &self,
        inputs: &mut Inputs<'_>,
        rows: Range<u64>,
        cols: Range<u64>,
    ) -> byte_source::Result<Vec<f32>> {
        let tiles = cols.start / TILE_COLS..cols.end.div_ceil(TILE_COLS);
        let mut numbers = Vec::new();
        let mut row = rows.start;
        while row < rows.end {
            let above = row / TILE_ROWS;
            let at = |tile: u64| (above * self.cols.div_ceil(TILE_COLS) + tile) * TILE;
            let read = self.operand.read_floats(inputs, at(tiles.start)..at(tiles.end))?;
            let end = rows.end.min((above + 1) * TILE_ROWS);
            for row in row..end {
                let within = row % 32 * 16 + row % TILE_ROWS / 32 * 4;
                numbers.extend(cols.clone().map(|col| {
                    let tile = col / TILE_COLS - tiles.start;
                    let at = tile * TILE + within + col % TILE_COLS;
                    usize::try_from(at).ok().and_then(|at| read.get(at)).copied().unwrap_or(f32::NAN)
                }));
            }
            row = end;
        }
        Ok(numbers)
    }

    /// Reads integers that are packed along the rows of the grid.
    fn read_packed(
        &self,
        inputs: &mut Inputs<'_>,
        rows: Range<u64>,
        cols: Range<u64>,
        bits: u32,
        offset: f32,
    ) -> byte_source::Result<Vec<f32>> {
        // A word begins inside a number if the bits do not divide 32, so reading begins at a multiple of 32 rows.
        let bit = |row: u64| row * u64::from(bits);
        let first = rows.start - rows.start % 32;
        let words = bit(first) / 32..bit(rows.end).div_ceil(32);
        let width = cols.end - cols.start;
        let part = ByteRows {
            start: (words.start * self.cols + cols.start) * 4,
            rows: words.end - words.start,
            pitch: self.cols * 4,
            len: width * 4,
        };
        let bytes = self.operand.read_rows(inputs, &part)?;
        let words_read = bytes.as_chunks::<4>().0;
        let width = usize::try_from(width).map_err(|_| io::ErrorKind::InvalidInput)?;
        let count = usize::try_from(rows.end - rows.start).unwrap_or(0);
        let mut numbers = vec![0.0; count * width];
        let skipped = usize::try_from(rows.start - first).unwrap_or(0);
        for col in 0..width {
            let column: Vec<u8> = words_read.iter().skip(col).step_by(width).flatten().copied().collect();
            let codes = unpack(&column, bits, CodeOrder::LowFirst, skipped + count);
            let numbers = numbers.iter_mut().skip(col).step_by(width);
            for (number, code) in numbers.zip(codes.iter().skip(skipped)) {
                *number = f32::from(*code) + offset;
            }
        }
        Ok(numbers)
    }
}

/// Returns the number of elements of a tiled grid, the incomplete tiles filled up.
pub(crate) fn tiled_len(rows: u64, cols: u64) -> Option<u64> {
    rows.div_ceil(TILE_ROWS).checked_mul(cols.div_ceil(TILE_COLS))?.checked_mul(TILE)
}

/// Reads the numbers of the blocks that a range of elements is in, and returns a function from an element to that of its block.
fn number_of_block(
    numbers: &Operand,
    block: u64,
    inputs: &mut Inputs<'_>,
    elements: &Range<u64>,
) -> byte_source::Result<impl Fn(u64) -> f32 + use<>> {
    let first = elements.start.checked_div(block).unwrap_or(0);
    let numbers = numbers.read_floats(inputs, first..elements.end.div_ceil(block.max(1)))?;
    Ok(move |element: u64| {
        let at = element.checked_div(block).unwrap_or(0) - first;
        usize::try_from(at).ok().and_then(|at| numbers.get(at)).copied().unwrap_or(f32::NAN)
    })
}

impl QuotientScales {
    fn read(
        &self,
        inputs: &mut Inputs<'_>,
        codes: &Operand,
        range: Range<u64>,
    ) -> byte_source::Result<Vec<f32>> {
        let mut numbers = codes.read_floats(inputs, range.clone())?;
        let divisor_of = number_of_block(&self.divisors, self.block, inputs, &range)?;
        for (element, number) in range.zip(&mut numbers) {
            *number /= divisor_of(element);
        }
        let mean = self.mean.read_floats(inputs, 0..1)?.first().copied().unwrap_or(f32::NAN);
        round_to(self.rounding, &mut numbers);
        for number in &mut numbers {
            *number += mean;
        }
        round_to(self.rounding, &mut numbers);
        Ok(numbers)
    }
}

impl NestedScales {
    fn read(
        &self,
        inputs: &mut Inputs<'_>,
        codes: &Operand,
        range: Range<u64>,
    ) -> byte_source::Result<Vec<f32>> {
        let numbers = codes.read_floats(inputs, range.clone())?;
        let table = self.table.read_floats(inputs, 0..256)?;
        let scale_of = number_of_block(&self.scales, self.block, inputs, &range)?;
        let number = |(element, code): (u64, &f32)| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a byte")]
            let value = table.get(*code as usize).copied().unwrap_or(f32::NAN);
            value * scale_of(element) + self.offset
        };
        Ok(range.zip(&numbers).map(number).collect())
    }
}

impl GlobalScale {
    /// Multiplies or divides the scales of a matrix.
    pub(crate) fn apply(
        &self,
        inputs: &mut Inputs<'_>,
        matrix: u64,
        scales: &mut [f32],
    ) -> byte_source::Result<()> {
        let at = if self.per_matrix { matrix } else { 0 };
        let global = self.operand.read_floats(inputs, at..at + 1)?;
        let global = global.first().copied().ok_or(io::ErrorKind::UnexpectedEof)? / self.unit;
        for scale in scales {
            *scale = if self.divides { *scale / global } else { *scale * global };
        }
        Ok(())
    }
}
