//! Computation of the numbers of a quantized tensor: a window at a time, on all cores, in one pass over the codes.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "the sizes of a tensor were compared with those of its parts when it was recognised"
)]

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use byte_source::WINDOW;
use kernels::{EncodedNumber, from_bf16, from_f16, to_bf16, to_f16};
use tensor::{Compute, Dtype, Inputs, Storage};

use crate::operand::Operand;

/// Largest number of elements that are loaded together.
const AREA_MAX: u64 = 1 << 19;
/// Bytes of the codes that are loaded together if the codes of a row are far apart.
const PANEL_BYTES: u64 = 10 << 20;
/// Rows of a panel are a multiple of this number, which divides the words of all schemes.
const PANEL_GRANULE: u64 = 32;

/// Rows and columns of one of the matrices that a tensor consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) matrix: u64,
    pub(crate) rows: Range<u64>,
    /// Columns; the first one is a multiple of [`Kernel::col_granule`], and the last one is before another or the end.
    pub(crate) cols: Range<u64>,
}

/// Codes, scales and zero points of an area, as a [`Kernel`] loads them.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// Stored bytes of the codes.
    pub(crate) codes: Vec<u8>,
    pub(crate) scales: Vec<f32>,
    pub(crate) zeros: Vec<f32>,
    /// Stored exponents of the scales, if the scheme has them.
    pub(crate) exponents: Vec<u8>,
    /// Group of each column, if the columns are not grouped in order.
    pub(crate) groups: Vec<u32>,
    /// Codes that are integers of more than a byte.
    pub(crate) integers: Vec<i32>,
    /// Scale and zero point of each channel, in float64.
    pub(crate) channels: Vec<(f64, f64)>,
}

/// Arithmetic of a scheme.
pub(crate) trait Kernel: Debug + Send + Sync {
    /// Returns the number of columns that cannot be loaded apart; 1 if each can.
    fn col_granule(&self) -> u64;

    /// Returns the number of bits of a code if the codes of a row are far apart in the file, so that many rows are loaded
    /// together; `None` if each row is one run of bytes.
    fn scattered_bits(&self) -> Option<u64> {
        None
    }

    /// Returns the number of rows that are computed together.
    fn row_granule(&self) -> u64 {
        1
    }

    /// Reads the codes, scales and zero points of an area.
    ///
    /// # Errors
    /// When an input cannot be read.
    fn load(&self, inputs: &mut Inputs<'_>, area: &Area) -> byte_source::Result<Loaded>;

    /// Computes a row of the area, counted from its first row, into `out`, which has the length of the columns. The numbers
    /// are not rounded to the dtype of the result yet.
    fn decode(&self, loaded: &Loaded, area: &Area, row: usize, out: &mut [f32]);

    /// Computes consecutive numbers of the area, from a row and column of it on, as encoded numbers of two bytes, if tables of
    /// them are faster than [`decode`](Self::decode); returns false otherwise, and leaves `out` as it is.
    fn decode_by_table(
        &self,
        _loaded: &Loaded,
        _area: &Area,
        _place: (usize, usize),
        _encoder: Encoder,
        _out: &mut [u8],
    ) -> bool {
        false
    }

    /// Returns the operand with the blocks of `Q8_0` that all numbers are those of; `None` for other kernels.
    fn q8_0_blocks(&self) -> Option<&Operand> {
        None
    }
}

/// Rounding of numbers as the method's library does it, and their encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encoder {
    /// Dtype of the result of the method's library, to which each number is rounded first.
    library: Dtype,
    dtype: Dtype,
}

impl Encoder {
    pub(crate) fn size(self) -> usize {
        usize::try_from(self.dtype.size()).unwrap_or(1)
    }

    pub(crate) fn encode(self, numbers: &mut [f32], out: &mut [u8]) {
        if self.library != self.dtype && self.library != Dtype::Float32 {
            round_to(self.library, numbers);
        }
        // Processors disagree on the sign and the payload of a NaN that they compute.
        round_each(numbers, |number| if number.is_nan() { f32::NAN } else { number });
        self.dtype.encode_f32(numbers, out);
    }

    /// Encodes tables of numbers, joined.
    pub(crate) fn encode_tables<const CODES: usize>(
        self,
        numbers: &mut [f32],
        tables: &mut [[EncodedNumber; CODES]],
    ) {
        self.encode(numbers, tables.as_flattened_mut().as_flattened_mut());
    }
}

/// Shape of the tensor that a kernel computes: matrices of rows and columns, one after another in C order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Matrices {
    pub(crate) rows: u64,
    pub(crate) cols: u64,
    /// Elements of all matrices together, of which the last row may be incomplete.
    pub(crate) elements: u64,
}

impl Matrices {
    /// Takes the last two dimensions as a matrix and the others as their number; `None` if a size overflows.
    pub(crate) fn from_shape(shape: &[u64]) -> Option<Self> {
        let (rows, cols) = match shape {
            [] => (1, 1),
            [cols] => (1, *cols),
            [.., rows, cols] => (*rows, *cols),
        };
        let elements = shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size))?;
        Some(Self { rows, cols, elements })
    }
}

/// Tensor that is computed from its quantized parts, in C order.
#[derive(Debug)]
pub(crate) struct Dequantized {
    kernel: Arc<dyn Kernel>,
    inputs: Vec<Storage>,
    matrices: Matrices,
    encoder: Encoder,
    /// Rows that were loaded last, of a kernel whose codes are scattered. The windows that are computed side by side are in
    /// at most two panels, if panels are larger than windows.
    panels: Mutex<Vec<Panel>>,
}

/// Rows that are loaded together, which several windows are computed from.
#[derive(Debug)]
struct Panel {
    area: Area,
    loaded: Arc<Loaded>,
    /// Number of elements that were not computed yet. The panel is dropped with the last one.
    remaining: u64,
}

const PANELS_MAX: usize = 2;

impl Dequantized {
    /// Creates the computation. `library` is the dtype in which the method's library returns the numbers, which are then cast
    /// to `dtype`. Returns `None` if the size overflows.
    pub(crate) fn new(
        kernel: Arc<dyn Kernel>,
        inputs: Vec<Storage>,
        matrices: Matrices,
        (library, dtype): (Dtype, Dtype),
    ) -> Option<Self> {
        let nbytes = matrices.elements.checked_mul(dtype.size())?;
        i64::try_from(nbytes).ok()?;
        let encoder = Encoder { library, dtype };
        Some(Self { kernel, inputs, matrices, encoder, panels: Mutex::default() })
    }

    /// Returns the area that begins at an element, has at most `count` elements, and is as large as possible, and the number
    /// of elements in it that come before the first one.
    fn area(&self, element: u64, count: u64) -> (Area, u64) {
        let Matrices { rows, cols, .. } = self.matrices;
        let (row, col) = (element / cols, element % cols);
        let (matrix, row) = (row / rows, row % rows);
        if col == 0 && count >= cols && cols <= AREA_MAX {
            let whole = (count.min(AREA_MAX) / cols).min(rows - row);
            return (Area { matrix, rows: row..row + whole, cols: 0..cols }, 0);
        }
        let granule = self.kernel.col_granule();
        let before = col % granule;
        let end = (col + count.min(AREA_MAX)).min(cols).next_multiple_of(granule).min(cols);
        (Area { matrix, rows: row..row + 1, cols: col - before..end }, before)
    }

    /// Returns the whole rows to load for an area; `None` if the area is loaded alone.
    fn panel_area(&self, area: &Area) -> Option<Area> {
        let Matrices { rows, cols, .. } = self.matrices;
        let most = PANEL_BYTES / (cols * self.kernel.scattered_bits()?).div_ceil(8);
        let count = most - most % PANEL_GRANULE;
        let start = area.rows.start - area.rows.start.checked_rem(count)?;
        Some(Area { matrix: area.matrix, rows: start..(start + count).min(rows), cols: 0..cols })
    }

    /// Computes `out` from the panel that has the first row of an area, and returns the number of bytes that it has.
    fn decode_panel(
        &self,
        inputs: &mut Inputs<'_>,
        area: &Area,
        col: u64,
        panel: &Area,
        out: &mut [u8],
    ) -> byte_source::Result<usize> {
        let within = |n: u64| usize::try_from(n).map_err(|_| io::ErrorKind::InvalidInput);
        let rows_left = panel.rows.end - area.rows.start;
        let size = self.encoder.dtype.size();
        let left = (rows_left * self.matrices.cols - col) * size;
        let len = out.len().min(within(left)?);
        let out = out.get_mut(..len).unwrap_or_default();
        let first = within(area.rows.start - panel.rows.start)?;
        let loaded = self.panel(inputs, panel, len as u64 / size)?;
        self.decode(&loaded, panel, (first, within(col)?), out);
        Ok(len)
    }

    /// Returns the rows of a panel, from which `count` elements will be computed, and loads it if it is not there. The lock is
    /// held meanwhile, so that other windows of the panel do not load it, too.
    fn panel(&self, inputs: &mut Inputs<'_>, area: &Area, count: u64) -> byte_source::Result<Arc<Loaded>> {
        let mut panels = self.panels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = panels.iter().position(|panel| panel.area == *area) {
            let panel = panels.swap_remove(at);
            let (loaded, remaining) = (Arc::clone(&panel.loaded), panel.remaining.saturating_sub(count));
            if remaining > 0 {
                panels.push(Panel { remaining, ..panel });
            }
            return Ok(loaded);
        }
        // An earlier panel is dropped before the next one is loaded.
        if panels.len() >= PANELS_MAX {
            panels.remove(0);
        }
        let loaded = Arc::new(self.kernel.load(inputs, area)?);
        let elements = |range: &Range<u64>| range.end - range.start;
        let all = elements(&area.rows) * elements(&area.cols);
        let remaining = all - count;
        if remaining > 0 {
            panels.push(Panel { area: area.clone(), loaded: Arc::clone(&loaded), remaining });
        }
        Ok(loaded)
    }

    /// Computes rows of an area, from row `first` on, into `out`, whose first byte is that of the column `skip` of the area.
    fn decode(&self, loaded: &Loaded, area: &Area, (first_row, skip): (usize, usize), out: &mut [u8]) {
        let size = self.encoder.size();
        if self.kernel.decode_by_table(loaded, area, (first_row, skip), self.encoder, out) {
            return;
        }
        let width = usize::try_from(area.cols.end - area.cols.start).unwrap_or(0);
        let mut numbers = vec![0.0; width];
        let (mut left, mut row, mut skip) = (out, first_row, skip);
        while !left.is_empty() {
            self.kernel.decode(loaded, area, row, &mut numbers);
            let kept = numbers.get_mut(skip..).unwrap_or_default();
            let len = (kept.len() * size).min(left.len());
            let (out, later) = std::mem::take(&mut left).split_at_mut_checked(len).unwrap_or_default();
            let kept = kept.get_mut(..len / size).unwrap_or_default();
            self.encoder.encode(kept, out);
            (left, row, skip) = (if len == 0 { &mut [] } else { later }, row + 1, 0);
        }
    }
}

pub(crate) fn round_to(dtype: Dtype, numbers: &mut [f32]) {
    if dtype == Dtype::Float32 {
        return;
    }
    // The encoding decides which NaN a NaN becomes.
    let has_nan = numbers.iter().fold(false, |has_nan, number| has_nan | number.is_nan());
    match dtype {
        Dtype::Float16 if !has_nan => round_each(numbers, |number| from_f16(to_f16(number))),
        Dtype::BFloat16 if !has_nan => round_each(numbers, |number| from_bf16(to_bf16(number))),
        _ => round_by_encoding(dtype, numbers),
    }
}

/// Rounds numbers with the vectors of the processor.
fn round_each(numbers: &mut [f32], nearest: impl Fn(f32) -> f32) {
    kernels::vectorize(|| {
        for number in numbers {
            *number = nearest(*number);
        }
    });
}

/// Rounds numbers to the nearest ones of any dtype.
fn round_by_encoding(dtype: Dtype, numbers: &mut [f32]) {
    let size = usize::try_from(dtype.size()).unwrap_or(1);
    let mut bytes = vec![0; numbers.len() * size];
    dtype.encode_f32(numbers, &mut bytes);
    let rounded = dtype.decode_f32(&bytes).unwrap_or_default();
    for (number, rounded) in numbers.iter_mut().zip(rounded) {
        *number = rounded;
    }
}

impl Compute for Dequantized {
    fn len(&self) -> u64 {
        self.matrices.elements * self.encoder.dtype.size()
    }

    fn inputs(&self) -> &[Storage] {
        &self.inputs
    }

    fn granule(&self) -> u64 {
        self.encoder.dtype.size()
    }

    fn is_costly(&self) -> bool {
        true
    }

    fn q8_0_blocks(&self) -> Option<Storage> {
        let blocks = self.kernel.q8_0_blocks().filter(|_| self.encoder.dtype == Dtype::Float32)?;
        blocks.storage_among(&self.inputs)
    }

    fn window(&self) -> u64 {
        let row_bytes = self.matrices.cols.saturating_mul(self.encoder.dtype.size());
        let block = row_bytes.saturating_mul(self.kernel.row_granule());
        (WINDOW as u64)
            .checked_div(block)
            .filter(|blocks| *blocks > 0)
            .map_or(WINDOW as u64, |blocks| block * blocks)
    }

    fn read_at(
        &self,
        inputs: &mut Inputs<'_>,
        mut buffer: &mut [u8],
        offset: u64,
    ) -> byte_source::Result<()> {
        let size = self.encoder.dtype.size().max(1);
        let mut element = offset / size;
        while !buffer.is_empty() {
            let count = buffer.len() as u64 / size;
            if element >= self.matrices.elements {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let (area, skip) = self.area(element, count);
            if let Some(panel) = self.panel_area(&area) {
                let col = area.cols.start + skip;
                // A part of a row ends with it.
                let row_left = (self.matrices.cols - col) * size;
                let most =
                    if col > 0 { usize::try_from(row_left).unwrap_or(usize::MAX) } else { buffer.len() };
                let part = buffer.get_mut(..most.min(buffer.len())).unwrap_or_default();
                let len = self.decode_panel(inputs, &area, col, &panel, part)?;
                if len == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                buffer = std::mem::take(&mut buffer).split_at_mut_checked(len).unwrap_or_default().1;
                element += len as u64 / size;
                continue;
            }
            let rows = area.rows.end - area.rows.start;
            let width = area.cols.end - area.cols.start - skip;
            let elements = (rows * width).min(count);
            if elements == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let within = |n: u64| usize::try_from(n).map_err(|_| io::ErrorKind::InvalidInput);
            let len = within(elements * size)?;
            let (out, rest) =
                std::mem::take(&mut buffer).split_at_mut_checked(len).ok_or(io::ErrorKind::UnexpectedEof)?;
            let loaded = self.kernel.load(inputs, &area)?;
            self.decode(&loaded, &area, (0, within(skip)?), out);
            buffer = rest;
            element += elements;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_as_they_are_encoded() {
        let patterns = (0..u32::MAX).step_by(9973).chain((0..u32::MAX).step_by(1 << 12));
        let near = patterns.clone().flat_map(|bits| [bits.wrapping_sub(1), bits.wrapping_add(1)]);
        let numbers = patterns.chain(near).map(f32::from_bits).filter(|number| !number.is_nan());
        let numbers: Vec<f32> = numbers.collect();
        for dtype in [Dtype::Float16, Dtype::BFloat16] {
            let (mut fast, mut slow) = (numbers.clone(), numbers.clone());
            round_to(dtype, &mut fast);
            round_by_encoding(dtype, &mut slow);
            let differs = fast.iter().zip(&slow).position(|(fast, slow)| fast.to_bits() != slow.to_bits());
            assert_eq!(differs.map(|at| (numbers[at], fast[at], slow[at])), None, "{dtype}");
        }
    }
}
