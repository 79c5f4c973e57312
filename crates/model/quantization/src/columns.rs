//! Codes in words that run along the columns of the result, so that a row of the result is a column of the stored matrix:
//! GPTQ, AWQ and the experts of gpt-oss.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "the sizes of a tensor were compared with those of its parts when it was recognised"
)]
#![expect(
    clippy::inline_always,
    reason = "a function for vectors is only compiled for them within its caller"
)]

use std::ops::Range;

use kernels::{EncodedNumber, NIBBLES, NibbleKernel, NibbleLookup, NibbleTable, RUN_BYTES, run_nibbles};
use tensor::Inputs;

use crate::dequantized::{Area, Encoder, Kernel, Loaded};
use crate::operand::{ByteRows, Operand};
use crate::row_part::{RowPart, copy_from};
use crate::scales::ScaleGrid;

/// Stored matrix of 32-bit words or bytes, of which each column or part of it is a row of the result.
#[derive(Debug)]
pub(crate) struct ColumnCodes {
    pub(crate) operand: Operand,
    pub(crate) packing: Packing,
    /// Rows of words in a stored matrix.
    pub(crate) word_rows: u64,
    /// Words in a row.
    pub(crate) width: u64,
    pub(crate) values: Box<[f32; 256]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// A column of words is a row of the result: 32 codes of consecutive columns in as many words as a code has bits, the
    /// lowest bits first.
    AlongColumns { bits: u32 },
    /// A row of words has the codes of consecutive rows of the result, eight at a time in AWQ's order, the lowest bits first. A
    /// code may continue in the next word.
    AlongRows { bits: u32 },
}

/// Place of each of eight rows among their codes in AWQ: order 0, 2, 4, 6, 1, 3, 5, 7.
const AWQ_PLACES: [u64; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// Returns the first bit of the code of a row in AWQ, in a row of words.
fn awq_bit(row: u64, bits: u32) -> u64 {
    let place = usize::try_from(row % 8).ok().and_then(|row| AWQ_PLACES.get(row)).copied();
    (row / 8 * 8 + place.unwrap_or(0)) * u64::from(bits)
}

/// Returns the words that have the codes of rows in AWQ.
fn awq_words(rows: &Range<u64>, bits: u32) -> Range<u64> {
    let bits = u64::from(bits);
    rows.start / 8 * 8 * bits / 32..(rows.end.div_ceil(8) * 8 * bits).div_ceil(32)
}

/// Returns the code that begins at a bit of words.
fn code_at(words: &[u32], bit: u64, bits: u32) -> u8 {
    let at = usize::try_from(bit / 32).unwrap_or(usize::MAX);
    let word = |at: usize| u64::from(words.get(at).copied().unwrap_or(0));
    let [low, ..] = ((word(at) | (word(at.saturating_add(1)) << 32)) >> (bit % 32)).to_le_bytes();
    low & u8::MAX.checked_shr(8_u32 - bits).unwrap_or(0)
}

/// Number of rows that are computed together: as many as have their codes in one cache line.
const BLOCK_ROWS: usize = 16;

/// Kernel that computes `(value − zero) · scale`, where scales and zero points are stored as columns too.
#[derive(Debug)]
pub(crate) struct ColumnScaled {
    pub(crate) codes: ColumnCodes,
    /// Scales: a row for each group, a column for each row of the result.
    pub(crate) scales: ScaleGrid,
    pub(crate) zeros: Zeros,
    pub(crate) group: u64,
    /// Group of each column as integers, if the columns are not grouped in order.
    pub(crate) groups: Option<Operand>,
}

/// Zero points of groups, stored like the codes.
#[derive(Debug)]
pub(crate) enum Zeros {
    /// Words with the zero points of consecutive rows of the result, the lowest bits first.
    Gptq { operand: Operand, bits: u32, width: u64, stored: StoredZeros },
    /// Words with the zero points of rows, in AWQ's order.
    Awq { operand: Operand, bits: u32, width: u64 },
}

/// What a stored zero point of GPTQ is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoredZeros {
    Same,
    /// One less. The ones are added to whole words, or if a zero point may be in two words to each zero point, which has no more bits then.
    LessInWords,
    /// One less. A one is added to each.
    Less,
}

impl Zeros {
    fn load(
        &self,
        inputs: &mut Inputs<'_>,
        groups: Range<u64>,
        rows: &Range<u64>,
    ) -> byte_source::Result<Vec<f32>> {
        let (operand, bits, width) = match self {
            Self::Gptq { operand, bits, width, .. } | Self::Awq { operand, bits, width } => {
                (operand, u64::from(*bits), *width)
            }
        };
        // Words in which the zero points of whole runs of 32 rows begin and end.
        let first = rows.start - rows.start % 32;
        let words = first * bits / 32..(rows.end * bits).div_ceil(32).min(width);
        let count = words.end - words.start;
        let part = ByteRows {
            start: (groups.start * width + words.start) * 4,
            rows: groups.end - groups.start,
            pitch: width * 4,
            len: count * 4,
        };
        let bytes = operand.read_rows(inputs, &part)?;
        let row_len = usize::try_from(count * 4).unwrap_or(0).max(1);
        let wanted = usize::try_from(rows.end - rows.start).unwrap_or(0);
        let skipped = usize::try_from(rows.start - first).unwrap_or(0);
        let mut zeros = Vec::with_capacity(wanted * bytes.len().checked_div(row_len).unwrap_or(0));
        for group in bytes.chunks(row_len) {
            let words = group.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
            let words: Vec<u32> = words.collect();
            let rows = skipped..skipped + wanted;
            match self {
                Self::Gptq { bits, stored, .. } => {
                    zeros.extend(rows.map(|row| f32::from(gptq_zero(&words, *bits, row, *stored))));
                }
                Self::Awq { bits, .. } => zeros
                    .extend(rows.map(|row| f32::from(code_at(&words, awq_bit(row as u64, *bits), *bits)))),
            }
        }
        Ok(zeros)
    }
}

/// Returns a zero point of GPTQ. gptqmodel adds the ones to whole words, so that one that overflows is carried into the next.
fn gptq_zero(words: &[u32], bits: u32, row: usize, stored: StoredZeros) -> u16 {
    let ones = match bits {
        2 => 0x5555_5555,
        4 => 0x1111_1111,
        8 => 0x0101_0101,
        _ => 0,
    };
    let ones = if stored == StoredZeros::LessInWords { ones } else { 0 };
    let at = row * bits as usize;
    let words = words.get(at / 32..).unwrap_or_default().iter().take(2);
    let words: Vec<u32> = words.map(|word| word.wrapping_add(ones)).collect();
    let code = code_at(&words, at as u64 % 32, bits);
    match stored {
        StoredZeros::Less => u16::from(code) + 1,
        StoredZeros::LessInWords if ones == 0 => {
            u16::from(code.wrapping_add(1) & u8::MAX.checked_shr(8_u32 - bits).unwrap_or(0))
        }
        _ => code.into(),
    }
}

impl ColumnCodes {
    /// Reads the words of an area, joined row by row.
    fn load(&self, inputs: &mut Inputs<'_>, area: &Area) -> byte_source::Result<Vec<u8>> {
        let Area { matrix, rows, cols } = area;
        let (first, last, words) = match self.packing {
            Packing::AlongColumns { bits } => {
                let word = |col: u64| col * u64::from(bits);
                (word(cols.start) / 32, word(cols.end).div_ceil(32).min(self.word_rows), rows.clone())
            }
            Packing::AlongRows { bits } => (cols.start, cols.end, awq_words(rows, bits)),
        };
        let before = matrix * self.word_rows;
        let start = (before + first) * self.width + words.start;
        let part = ByteRows {
            start: start * 4,
            rows: last - first,
            pitch: self.width * 4,
            len: (words.end - words.start) * 4,
        };
        self.operand.read_rows(inputs, &part)
    }

    fn unpack(&self, words: &[u8], area: &Area, row: usize, out: &mut [u8]) {
        let words = words.as_chunks::<4>().0;
        let within = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        match self.packing {
            Packing::AlongColumns { bits } => {
                let width = within(area.rows.end - area.rows.start).max(1);
                let mut column = words.iter().skip(row).step_by(width).map(|word| u32::from_le_bytes(*word));
                let mask = u32::MAX.checked_shr(32_u32 - bits).unwrap_or(0);
                let per_word = 32_u32.checked_div(bits).unwrap_or(1).max(1);
                if bits.is_power_of_two() {
                    for (codes, word) in out.chunks_mut(per_word as usize).zip(column) {
                        let mut rest = word;
                        for code in codes {
                            let [low, ..] = (rest & mask).to_le_bytes();
                            *code = low;
                            rest = rest.checked_shr(bits).unwrap_or(0);
                        }
                    }
                    return;
                }
                let (mut rest, mut has) = (0_u64, 0_u32);
                for code in out {
                    if has < bits {
                        rest |= u64::from(column.next().unwrap_or(0)).checked_shl(has).unwrap_or(0);
                        has += 32;
                    }
                    let [low, ..] = (rest & u64::from(mask)).to_le_bytes();
                    *code = low;
                    rest = rest.checked_shr(bits).unwrap_or(0);
                    has -= bits;
                }
            }
            Packing::AlongRows { bits } => {
                let part = awq_words(&area.rows, bits);
                let bit = awq_bit(area.rows.start + row as u64, bits).saturating_sub(part.start * 32);
                let stored = words.chunks(within(part.end - part.start).max(1));
                for (code, stored) in out.iter_mut().zip(stored) {
                    let word = |at: u64| stored.get(within(at)).map_or(0, |word| u32::from_le_bytes(*word));
                    *code = code_at(&[word(bit / 32), word(bit / 32 + 1)], bit % 32, bits);
                }
            }
        }
    }
}

impl ColumnCodes {
    /// Looks up the codes of a part of a row in a table of encoded numbers.
    #[inline(always)]
    fn look_up<S: NibbleLookup>(
        &self,
        simd: S,
        words: &[[u8; 4]],
        (row, col, width): (usize, usize, usize),
        table: &NibbleTable,
        out: &mut [EncodedNumber],
    ) {
        match self.packing {
            Packing::AlongColumns { .. } => {
                let first = col / 8 * width + row;
                let mut column = words.get(first..).unwrap_or_default().iter().step_by(width);
                let (mut left, mut skipped) = (out, col % 8);
                while !left.is_empty() {
                    let count = left.len().min(64_usize - skipped);
                    let (out, later) =
                        std::mem::take(&mut left).split_at_mut_checked(count).unwrap_or_default();
                    let mut codes = [[[0; 4]; RUN_BYTES / 4]; 2];
                    let codes_needed = (skipped + count).div_ceil(8);
                    for (place, word) in
                        codes.as_flattened_mut().iter_mut().zip(column.by_ref().take(codes_needed))
                    {
                        *place = *word;
                    }
                    let codes = codes.map(|words| {
                        let mut bytes = [0; RUN_BYTES];
                        bytes.copy_from_slice(words.as_flattened());
                        bytes
                    });
                    let numbers: [[EncodedNumber; 32]; 2] = simd.look_up([table, table], codes);
                    let mut joined = [[0; 2]; 64];
                    joined.as_chunks_mut().0.copy_from_slice(&numbers);
                    copy_from(&joined, skipped, out);
                    (left, skipped) = (later, 0);
                }
            }
            Packing::AlongRows { .. } => {
                let find = |code: u32| table.get((code & 15) as usize).copied().unwrap_or_default();
                let width = width.div_ceil(8).max(1);
                let shift = u32::try_from(awq_bit(row as u64 % 8, 4)).unwrap_or(0);
                let first = col * width + row / 8;
                let column = words.get(first..).unwrap_or_default().iter().step_by(width);
                for (out, word) in out.iter_mut().zip(column) {
                    *out = find(u32::from_le_bytes(*word) >> (shift & 31));
                }
            }
        }
    }
}

impl Kernel for ColumnScaled {
    fn col_granule(&self) -> u64 {
        32
    }

    fn row_granule(&self) -> u64 {
        BLOCK_ROWS as u64
    }

    fn scattered_bits(&self) -> Option<u64> {
        let (Packing::AlongColumns { bits } | Packing::AlongRows { bits }) = self.codes.packing;
        Some(bits.into())
    }

    fn load(&self, inputs: &mut Inputs<'_>, area: &Area) -> byte_source::Result<Loaded> {
        let Area { matrix, rows, cols } = area;
        let (groups, in_order) = if let Some(groups) = &self.groups {
            (groups.read_integers(inputs, cols.clone())?, 0..self.scales.rows)
        } else {
            let first = cols.start.checked_div(self.group).unwrap_or(0);
            (Vec::new(), first..cols.end.div_ceil(self.group.max(1)))
        };
        Ok(Loaded {
            codes: self.codes.load(inputs, area)?,
            scales: self.scales.load(inputs, *matrix, in_order.clone(), rows.clone())?,
            zeros: self.zeros.load(inputs, in_order, rows)?,
            groups,
            ..Loaded::default()
        })
    }

    fn decode(&self, loaded: &Loaded, area: &Area, row: usize, out: &mut [f32]) {
        let mut codes = vec![0; out.len()];
        self.codes.unpack(&loaded.codes, area, row, &mut codes);
        let width = usize::try_from(area.rows.end - area.rows.start).unwrap_or(1).max(1);
        let values = &self.codes.values;
        let value = |code: u8| values.get(usize::from(code)).copied().unwrap_or_default();
        let scales: Vec<f32> = loaded.scales.iter().skip(row).step_by(width).copied().collect();
        let zeros: Vec<f32> = loaded.zeros.iter().skip(row).step_by(width).copied().collect();
        if self.groups.is_some() {
            for ((out, code), group) in out.iter_mut().zip(&codes).zip(&loaded.groups) {
                let at = *group as usize;
                let scale = scales.get(at).copied().unwrap_or(f32::NAN);
                *out = (value(*code) - zeros.get(at).copied().unwrap_or_default()) * scale;
            }
            return;
        }
        let group = usize::try_from(self.group).unwrap_or(usize::MAX).max(1);
        let into = usize::try_from(area.cols.start.checked_rem(self.group).unwrap_or(0)).unwrap_or(0);
        let (mut out, mut codes, mut len) = (out, codes.as_slice(), group - into);
        for (scale, zero) in scales.iter().zip(&zeros) {
            len = len.min(out.len());
            let (now, later) = out.split_at_mut_checked(len).unwrap_or_default();
            let (now_codes, later_codes) = codes.split_at_checked(len).unwrap_or_default();
            for (out, code) in now.iter_mut().zip(now_codes) {
                *out = (value(*code) - zero) * *scale;
            }
            (out, codes, len) = (later, later_codes, group);
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
        let (Ok(group), Ok(width), Ok(cols)) = (
            usize::try_from(self.group),
            usize::try_from(area.rows.end - area.rows.start),
            usize::try_from(area.cols.end - area.cols.start),
        ) else {
            return false;
        };
        let is_suited = match self.codes.packing {
            Packing::AlongColumns { bits } => bits == 4,
            Packing::AlongRows { bits } => bits == 4 && area.rows.start.is_multiple_of(8),
        };
        let is_whole = group > 0 && group.is_multiple_of(8) && area.cols.start == 0 && cols.is_multiple_of(8);
        if encoder.size() != 2 || self.groups.is_some() || !is_suited || !is_whole {
            return false;
        }
        let parts = RowPart::split(place, cols, out);
        run_nibbles(RowBlocks { kernel: self, loaded, width, group, encoder, parts });
        true
    }
}

/// Computation of rows of numbers by tables of each group.
struct RowBlocks<'b> {
    kernel: &'b ColumnScaled,
    loaded: &'b Loaded,
    /// Rows that were loaded.
    width: usize,
    group: usize,
    encoder: Encoder,
    parts: Vec<RowPart<'b>>,
}

impl NibbleKernel for RowBlocks<'_> {
    #[inline(always)]
    fn run<S: NibbleLookup>(self, simd: S) {
        let Self { kernel, loaded, width, group, encoder, mut parts } = self;
        let words = loaded.codes.as_chunks::<4>().0;
        for block in parts.chunks_mut(BLOCK_ROWS) {
            let first = block.first().map_or(0, |part| part.row);
            let rows = first..first + block.len();
            let mut tables = [[[0; 2]; NIBBLES]; BLOCK_ROWS];
            let mut columns = 0..group;
            for (scales, zeros) in loaded.scales.chunks(width).zip(loaded.zeros.chunks(width)) {
                let scales = scales.get(rows.clone()).unwrap_or_default();
                let zeros = zeros.get(rows.clone()).unwrap_or_default();
                let mut numbers = [[0.0; NIBBLES]; BLOCK_ROWS];
                for ((numbers, scale), zero) in numbers.iter_mut().zip(scales).zip(zeros) {
                    for (number, value) in numbers.iter_mut().zip(kernel.codes.values.iter()) {
                        *number = (value - zero) * scale;
                    }
                }
                encoder.encode_tables(numbers.as_flattened_mut(), &mut tables);
                for (part, table) in block.iter_mut().zip(&tables) {
                    let row = part.row;
                    let (col, out) = part.columns(&columns);
                    kernel.codes.look_up(simd, words, (row, col, width), table, out);
                }
                columns = columns.end..columns.end.saturating_add(group);
            }
        }
    }
}
