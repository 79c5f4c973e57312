//! A matrix of weights with its bias.

use crate::kernel::{Matrix, Pool, Product};
use crate::number::Real;

/// A matrix, and the bias that is added to its products.
#[derive(Debug)]
pub(crate) struct Linear<T> {
    pub(crate) matrix: Matrix,
    pub(crate) bias: Option<Vec<T>>,
}

impl<T: Real> Linear<T> {
    /// The products of rows, as one piece of work for the threads: each matrix, rows of its width, and where their products go.
    pub(crate) fn apply_all<'a>(
        pool: &Pool,
        all: impl IntoIterator<Item = (&'a Self, &'a [T], &'a mut [T])>,
    ) {
        let products = all.into_iter().map(|(linear, x, y)| {
            let rows = y.len() / linear.matrix.rows();
            Product::new(&linear.matrix, x, rows, linear.bias.as_deref(), y)
        });
        T::linear(pool, products.collect());
    }
}
