//! Linear layers: a weight matrix with its bias.

use crate::kernel::{Matrix, Pool, Product};
use crate::number::Real;

/// Weight matrix, and the bias that is added to its products.
#[derive(Debug)]
pub(crate) struct Linear<T> {
    pub(crate) matrix: Matrix,
    pub(crate) bias: Option<Vec<T>>,
}

impl<T: Real> Linear<T> {
    /// Computes the products of all items as one batch of work for the threads. Each item is a linear layer, its input
    /// rows, and its output rows.
    pub(crate) fn apply_all<'a>(
        pool: &Pool,
        all: impl IntoIterator<Item = (&'a Self, &'a [T], &'a mut [T])>,
    ) {
        let products = all.into_iter().map(|(linear, x, y)| {
            let rows = y.len() / linear.matrix.rows();
            let mut product = Product::new(&linear.matrix, x, rows, linear.bias.as_deref(), y);
            product.is_alike = pool.computes_rows_alike();
            product
        });
        T::linear(pool, products.collect());
    }
}
