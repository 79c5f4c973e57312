//! A matrix of weights with its bias.

use crate::kernel::{Matrix, Pool};
use crate::number::Real;

/// A matrix, and the bias that is added to its products.
#[derive(Debug)]
pub(crate) struct Linear<T> {
    pub(crate) matrix: Matrix,
    pub(crate) bias: Option<Vec<T>>,
}

impl<T: Real> Linear<T> {
    /// The products of `rows` rows of `x`.
    pub(crate) fn apply(&self, pool: &Pool, x: &[T], rows: usize, y: &mut [T]) {
        T::linear(pool, &self.matrix, x, rows, self.bias.as_deref(), y);
    }
}
