//! Rows of codes of four bits, whose groups have tables of encoded numbers.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "the sizes of a tensor were compared with those of its parts when it was recognised"
)]
#![expect(
    clippy::inline_always,
    reason = "a function for vectors is only compiled for them within its caller"
)]

use kernels::{NIBBLES, NibbleKernel, NibbleLookup, NibbleTable, RUN_BYTES};

use crate::dequantized::Encoder;
use crate::packed::CodeOrder;
use crate::row_part::{RowPart, copy_from};

/// Computation of parts of rows. `fill` writes the numbers of all codes for each group of a row.
pub(crate) struct NibbleRows<'b, F> {
    pub(crate) codes: &'b [u8],
    pub(crate) order: CodeOrder,
    pub(crate) cols: usize,
    /// Columns of a group: half a run or whole runs.
    pub(crate) group: usize,
    pub(crate) encoder: Encoder,
    pub(crate) parts: Vec<RowPart<'b>>,
    pub(crate) fill: F,
}

/// Codes in a run.
const RUN: usize = 2 * RUN_BYTES;

/// Returns true if the numbers of a group with this many columns can be looked up in a table.
pub(crate) fn is_suited(group: usize) -> bool {
    group == RUN_BYTES || (group > 0 && group.is_multiple_of(RUN))
}

impl<F: FnMut(usize, &mut [[f32; NIBBLES]])> NibbleKernel for NibbleRows<'_, F> {
    #[inline(always)]
    fn run<S: NibbleLookup>(self, simd: S) {
        let Self { codes, order, cols, group, encoder, parts, mut fill } = self;
        let groups = cols.div_ceil(group.max(1));
        let mut numbers = vec![[0.0; NIBBLES]; groups];
        let mut tables: Vec<NibbleTable> = vec![[[0; 2]; NIBBLES]; groups];
        for mut part in parts {
            fill(part.row, &mut numbers);
            encoder.encode_tables(numbers.as_flattened_mut(), &mut tables);
            let row = codes.get(part.row * cols / 2..).unwrap_or_default();
            let row = row.get(..cols / 2).unwrap_or(row);
            let table = |col: usize| tables.get(col / group).or(tables.last());
            for (run, first) in row.chunks(RUN_BYTES).zip((0..cols).step_by(RUN)) {
                let (from, out) = part.columns(&(first..first + RUN));
                if out.is_empty() {
                    continue;
                }
                let mut bytes = [0; RUN_BYTES];
                for (byte, code) in bytes.iter_mut().zip(run) {
                    *byte = if order == CodeOrder::LowFirst { *code } else { code.rotate_left(4) };
                }
                let Some((low, high)) = table(first).zip(table(first + RUN_BYTES)) else { continue };
                let [mut numbers, of_high] = simd.look_up([low, high], [bytes, bytes]);
                let halves = numbers.iter_mut().zip(of_high).skip(RUN_BYTES);
                halves.for_each(|(number, other)| *number = other);
                copy_from(&numbers, from - first, out);
            }
        }
    }
}
