//! Options for casting tensors to other dtypes.

use std::fmt;

use tensor::Dtype;

/// Cast of the tensors of one or more dtypes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cast {
    pub from: CastFrom,
    /// New dtype in the output.
    pub to: Dtype,
}

/// Tensors that a [`Cast`] applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CastFrom {
    /// All tensors of this dtype.
    Dtype(Dtype),
    /// All tensors of real floating-point dtypes that no other cast applies to. Complex dtypes are not included.
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
