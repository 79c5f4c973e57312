//! Row-wise work that the threads share if there is enough of it.

use crate::kernel::Pool;

/// Number of elements below which one thread is faster than several.
pub(crate) const PARALLEL_ELEMENTS_MIN: usize = 1 << 15;

/// Calls `work` with the number and the elements of each row of `width` elements.
pub(crate) fn share_rows<T: Send>(
    pool: &Pool,
    elements: &mut [T],
    width: usize,
    work: impl Fn(usize, &mut [T]) + Send + Sync,
) {
    let rows_at_once = PARALLEL_ELEMENTS_MIN.div_ceil(width);
    let parts = elements.chunks_mut(rows_at_once * width).enumerate();
    pool.for_each(parts, |(part, elements)| {
        let first = part * rows_at_once;
        for (row, elements) in (first..).zip(elements.chunks_exact_mut(width)) {
            work(row, elements);
        }
    });
}
