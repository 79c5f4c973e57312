//! Which tensors get another dtype.

use std::fmt;

use tensor::Dtype;

/// Tensors of which dtype become which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cast {
    /// Which tensors.
    pub from: CastFrom,
    /// Their dtype in the output.
    pub to: Dtype,
}

/// Which tensors a [`Cast`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CastFrom {
    /// Those of this dtype.
    Dtype(Dtype),
    /// Those of every floating-point dtype that no other cast is about. Complex numbers are not among them.
    FloatingPoint,
}

impl From<Dtype> for CastFrom {
    fn from(dtype: Dtype) -> Self {
        Self::Dtype(dtype)
    }
}

impl fmt::Display for CastFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dtype(dtype) => dtype.fmt(f),
            Self::FloatingPoint => f.write_str("floating-point"),
        }
    }
}
