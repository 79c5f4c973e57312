//! Parts of rows of encoded numbers of two bytes, into which tables are looked up.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "the sizes of a tensor were compared with those of its parts when it was recognised"
)]
#![expect(
    clippy::inline_always,
    reason = "a function for vectors is only compiled for them within its caller"
)]

use std::ops::Range;

use kernels::EncodedNumber;

/// Part of a row of encoded numbers.
pub(crate) struct RowPart<'o> {
    pub(crate) row: usize,
    /// Column of the first number.
    col: usize,
    numbers: &'o mut [EncodedNumber],
}

impl<'o> RowPart<'o> {
    /// Splits consecutive numbers, the first one at `row` and `col`, into the parts of their rows.
    pub(crate) fn split((row, col): (usize, usize), cols: usize, numbers: &'o mut [u8]) -> Vec<Self> {
        let (mut left, _) = numbers.as_chunks_mut();
        let (mut parts, mut row, mut col) = (Vec::new(), row, col);
        while !left.is_empty() && col < cols {
            let count = (cols - col).min(left.len());
            let (numbers, later) = std::mem::take(&mut left).split_at_mut_checked(count).unwrap_or_default();
            parts.push(Self { row, col, numbers });
            (left, row, col) = (later, row + 1, 0);
        }
        parts
    }

    /// Returns the numbers of all `LEN` columns from the column `first` on; `None` if the part does not have them all.
    #[inline(always)]
    pub(crate) fn whole_columns<const LEN: usize>(
        &mut self,
        first: usize,
    ) -> Option<&mut [EncodedNumber; LEN]> {
        let start = first.checked_sub(self.col)?;
        self.numbers.get_mut(start..)?.first_chunk_mut()
    }

    /// Returns the numbers of some of the columns, and the first one of these columns.
    #[inline(always)]
    pub(crate) fn columns(&mut self, columns: &Range<usize>) -> (usize, &mut [EncodedNumber]) {
        let end = (self.col + self.numbers.len()).min(columns.end);
        let first = self.col.max(columns.start);
        let part = first - self.col..end.saturating_sub(self.col);
        (first, self.numbers.get_mut(part).unwrap_or_default())
    }
}

/// Copies numbers to `out`, from the one at `skipped` on. A whole array is copied without a call.
#[inline(always)]
pub(crate) fn copy_from<const LEN: usize>(
    numbers: &[EncodedNumber; LEN],
    skipped: usize,
    out: &mut [EncodedNumber],
) {
    if skipped == 0
        && let Ok(whole) = <&mut [EncodedNumber; LEN]>::try_from(&mut *out)
    {
        *whole = *numbers;
    } else if let Some(part) = numbers.get(skipped..skipped + out.len()) {
        out.copy_from_slice(part);
    }
}
