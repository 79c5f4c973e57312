//! Loops over vectors, written so that the compiler makes vector instructions of them.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "floating-point numbers do not overflow; indices are of arrays"
)]

use crate::number::Real;

/// Partial sums, so that an addition need not wait for the one before it.
const LANES: usize = 32;

/// The sum of the squares.
pub(crate) fn sum_of_squares<T: Real>(x: &[T]) -> T {
    let mut sums = [T::default(); LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (sum, x) in sums.iter_mut().zip(chunk) {
            *sum += *x * *x;
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *sum += *x * *x;
    }
    sums.into_iter().fold(T::default(), |sum, part| sum + part)
}

/// `x += y`.
pub(crate) fn add<T: Real>(x: &mut [T], y: &[T]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += *y;
    }
}

/// `gate = silu(gate) * up`.
pub(crate) fn gated<T: Real>(gate: &mut [T], up: &[T]) {
    for (gate, up) in gate.iter_mut().zip(up) {
        *gate = *gate / (T::ONE + (-*gate).exp()) * *up;
    }
}

/// `c[rows, columns] += a[rows, inner] · b[inner, columns]`, each row of `a`, `b` and `c` being `a_step`, `b_step` and
/// `c_step` after the one before it.
pub(crate) struct Product<'v, T> {
    pub(crate) a: &'v [T],
    pub(crate) a_step: usize,
    pub(crate) b: &'v [T],
    pub(crate) b_step: usize,
    pub(crate) inner: usize,
    pub(crate) columns: usize,
    pub(crate) c_step: usize,
}

/// Rows and columns of sums that fit in registers.
const TALL: usize = 4;
const WIDE: usize = 32;

impl<T: Real> Product<'_, T> {
    /// Adds the product to `c`, which has as many rows as `a`.
    pub(crate) fn add_to(&self, c: &mut [T]) {
        let (a_rows, c_rows) = (TALL.saturating_mul(self.a_step), TALL.saturating_mul(self.c_step));
        for (a, c) in self.a.chunks(a_rows.max(1)).zip(c.chunks_mut(c_rows.max(1))) {
            if a.len() >= a_rows {
                self.rows::<TALL>(a, c);
            } else {
                for (a, c) in a.chunks(self.a_step.max(1)).zip(c.chunks_mut(self.c_step.max(1))) {
                    self.rows::<1>(a, c);
                }
            }
        }
    }

    fn rows<const R: usize>(&self, a: &[T], c: &mut [T]) {
        let mut column = 0;
        while column + WIDE <= self.columns {
            self.tile::<R, WIDE>(a, column, c);
            column += WIDE;
        }
        while column + 8 <= self.columns {
            self.tile::<R, 8>(a, column, c);
            column += 8;
        }
        while column < self.columns {
            self.tile::<R, 1>(a, column, c);
            column += 1;
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "its sums are to stay in registers")]
    fn tile<const R: usize, const C: usize>(&self, a: &[T], column: usize, c: &mut [T]) {
        let mut sums = [[T::default(); C]; R];
        let rows: [&[T]; R] = std::array::from_fn(|row| {
            let start = row * self.a_step;
            a.get(start..start + self.inner).unwrap_or_default()
        });
        if rows.iter().any(|row| row.len() != self.inner) {
            return;
        }
        for (index, b) in self.b.chunks(self.b_step.max(1)).take(self.inner).enumerate() {
            let Some(b) = b.get(column..).and_then(<[T]>::first_chunk::<C>) else { return };
            for (sums, row) in sums.iter_mut().zip(&rows) {
                let Some(a) = row.get(index) else { return };
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum += *a * *b;
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            let start = row * self.c_step + column;
            if let Some(c) = c.get_mut(start..start + C) {
                add(c, sums);
            }
        }
    }
}
