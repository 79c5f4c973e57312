//! Operands of a matrix product.

use super::Matrix;

/// Largest number of inputs whose products are computed while each row of weights is read once (`few_inputs.rs`), unless rows are
/// computed alike.
pub(super) const FEW_INPUTS_MAX: usize = 8;

/// The same number where rows are computed alike.
pub(super) const ALIKE_INPUTS_MAX: usize = 32;

/// Matrix product `y[m, rows] = x[m, cols] · Wᵀ + bias`, all in C order.
pub(crate) struct Product<'a, T> {
    pub(super) w: &'a Matrix,
    pub(super) x: &'a [T],
    pub(super) m: usize,
    pub(super) bias: Option<&'a [T]>,
    pub(super) y: &'a mut [T],
    /// True if the result of an input must not depend on how many others there are.
    pub(crate) is_alike: bool,
}

impl<'a, T: KernelNumber> Product<'a, T> {
    /// Creates a product of `m` inputs with a weight matrix.
    ///
    /// # Panics
    /// When the length of `x`, `y` or `bias` is not the one that `m` and the matrix imply.
    pub(crate) fn new(w: &'a Matrix, x: &'a [T], m: usize, bias: Option<&'a [T]>, y: &'a mut [T]) -> Self {
        assert_eq!(m * w.cols(), x.len(), "x is [m, cols]");
        assert_eq!(m * w.rows(), y.len(), "y is [m, rows]");
        assert!(bias.is_none_or(|bias| bias.len() == w.rows()), "bias is [rows]");
        Self { w, x, m, bias, y, is_alike: false }
    }

    /// Returns true if there are so many inputs that weights are widened into a buffer.
    pub(super) fn has_many_inputs(&self) -> bool {
        self.m > FEW_INPUTS_MAX && !self.is_alike
    }

    /// Splits the product, which is not empty, into products of at most `most` inputs.
    pub(super) fn split_inputs(self, most: usize) -> impl Iterator<Item = Self> {
        let Self { w, x, bias, y, is_alike, .. } = self;
        let parts = x.chunks(w.cols() * most).zip(y.chunks_mut(w.rows() * most));
        parts.map(move |(x, y)| Self { w, x, m: x.len() / w.cols(), bias, y, is_alike })
    }

    /// Splits a product whose rows are computed alike into those that are computed at once; others stay whole.
    pub(super) fn split_if_alike(self) -> impl Iterator<Item = Self> {
        let most = if self.is_alike { ALIKE_INPUTS_MAX } else { self.m };
        self.split_inputs(most)
    }

    /// Returns true if nothing is multiplied because a length is 0. The outputs are then set to the bias.
    pub(super) fn fill_if_empty(&mut self) -> bool {
        let is_empty = self.y.is_empty() || self.x.is_empty();
        if is_empty {
            self.y.fill(T::default());
            for (y, bias) in self.y.iter_mut().zip(self.bias.into_iter().flatten().cycle()) {
                *y = *bias;
            }
        }
        is_empty
    }
}

/// Number type that products are computed in.
pub(crate) trait KernelNumber:
    Copy + Default + Send + Sync + std::ops::Add<Output = Self> + 'static
{
}
impl KernelNumber for f32 {}
impl KernelNumber for f64 {}
