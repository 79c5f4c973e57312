//! What a product takes.

use super::Matrix;

/// `y[m, rows] = x[m, cols] · Wᵀ + bias`, all in C order.
pub(crate) struct Product<'a, T> {
    pub(super) w: &'a Matrix,
    pub(super) x: &'a [T],
    pub(super) m: usize,
    pub(super) bias: Option<&'a [T]>,
    pub(super) y: &'a mut [T],
}

impl<'a, T: Number> Product<'a, T> {
    /// A product of these.
    ///
    /// # Panics
    /// When the length of `x`, `y` or `bias` is not the one that `m` and the matrix imply.
    pub(crate) fn new(w: &'a Matrix, x: &'a [T], m: usize, bias: Option<&'a [T]>, y: &'a mut [T]) -> Self {
        assert_eq!(m.checked_mul(w.cols()), Some(x.len()), "x is [m, cols]");
        assert_eq!(m.checked_mul(w.rows()), Some(y.len()), "y is [m, rows]");
        assert!(bias.is_none_or(|bias| bias.len() == w.rows()), "bias is [rows]");
        Self { w, x, m, bias, y }
    }

    /// Whether there are so many inputs that weights are widened into a buffer.
    pub(super) fn is_many(&self) -> bool {
        self.m > super::small::MOST
    }

    /// The product as several of at most `most` inputs.
    pub(super) fn parts(self, most: usize) -> impl Iterator<Item = Self> {
        let Self { w, x, bias, y, .. } = self;
        let x = x.chunks(w.cols().saturating_mul(most).max(1));
        let y = y.chunks_mut(w.rows().saturating_mul(most).max(1));
        x.zip(y).map(move |(x, y)| {
            let m = x.len().checked_div(w.cols()).unwrap_or(0);
            Self { w, x, m, bias, y }
        })
    }

    /// Whether nothing is multiplied, because a length is 0. Then the outputs are the bias.
    pub(super) fn is_empty(&mut self) -> bool {
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

/// A number that products are computed in.
pub(crate) trait Number:
    Copy + Default + Send + Sync + std::ops::Add<Output = Self> + 'static
{
}
impl Number for f32 {}
impl Number for f64 {}
