//! Length of a dimension, whose arithmetic saturates: a configuration may say anything.

use std::ops::{Add, Div, Mul, Sub};

/// Length of a dimension. Its arithmetic saturates, and a division by zero is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) u64);

impl Size {
    /// Returns the quotient, rounded up.
    pub(crate) fn div_ceil(self, by: Self) -> Self {
        (self + by - Size(1)) / by
    }
}

impl From<u64> for Size {
    fn from(value: u64) -> Self {
        Self(value)
    }
}

impl<T: Into<Size>> Add<T> for Size {
    type Output = Self;

    fn add(self, other: T) -> Self {
        Self(self.0.saturating_add(other.into().0))
    }
}

impl<T: Into<Size>> Sub<T> for Size {
    type Output = Self;

    fn sub(self, other: T) -> Self {
        Self(self.0.saturating_sub(other.into().0))
    }
}

impl<T: Into<Size>> Mul<T> for Size {
    type Output = Self;

    fn mul(self, other: T) -> Self {
        Self(self.0.saturating_mul(other.into().0))
    }
}

impl<T: Into<Size>> Div<T> for Size {
    type Output = Self;

    fn div(self, other: T) -> Self {
        Self(self.0.checked_div(other.into().0).unwrap_or_default())
    }
}
