//! Matrix products: activations times a matrix of weights, transposed, as PyTorch's `torch.nn.functional.linear` defines them.
//!
//! Weights are read in place, in any dtype, and sums are f32 (f64 in [`linear_f64`]). The result of a product does not depend
//! on the number of threads.

mod matrix;
mod pool;
mod portable;

pub(crate) use matrix::Matrix;
pub(crate) use pool::Pool;
pub(crate) use portable::Number;

/// The name of the kernels that this CPU runs.
pub(crate) fn name() -> &'static str {
    "portable"
}

/// `y[m, rows] = x[m, cols] · Wᵀ + bias`, all in C order.
///
/// # Panics
/// When the length of `x`, `y` or `bias` is not the one that `m` and the matrix imply.
pub(crate) fn linear(pool: &Pool, w: &Matrix, x: &[f32], m: usize, bias: Option<&[f32]>, y: &mut [f32]) {
    check(w, x.len(), m, bias.map(<[f32]>::len), y.len());
    portable::linear(pool, w, x, m, bias, y);
}

/// The same in f64.
///
/// # Panics
/// When the length of `x`, `y` or `bias` is not the one that `m` and the matrix imply.
pub(crate) fn linear_f64(pool: &Pool, w: &Matrix, x: &[f64], m: usize, bias: Option<&[f64]>, y: &mut [f64]) {
    check(w, x.len(), m, bias.map(<[f64]>::len), y.len());
    portable::linear(pool, w, x, m, bias, y);
}

/// The elements of a row, widened or rounded; nothing if there is no such row.
pub(crate) fn row<T: Number>(w: &Matrix, index: usize, out: &mut Vec<T>) {
    out.clear();
    let row_bytes = w.bytes().len().checked_div(w.rows()).unwrap_or(0);
    let start = index.saturating_mul(row_bytes);
    if let Some(bytes) = w.bytes().get(start..start.saturating_add(row_bytes)) {
        T::read(w.dtype(), bytes, out);
    }
}

/// Panics unless the lengths belong to one product.
fn check(w: &Matrix, x: usize, m: usize, bias: Option<usize>, y: usize) {
    assert_eq!(m.checked_mul(w.cols()), Some(x), "x is [m, cols]");
    assert_eq!(m.checked_mul(w.rows()), Some(y), "y is [m, rows]");
    assert!(bias.is_none_or(|len| len == w.rows()), "bias is [rows]");
}

#[cfg(test)]
mod tests;
