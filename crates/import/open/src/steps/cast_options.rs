//! Options for casting tensors to other dtypes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tensor::{Dtype, DtypeConversion, UnknownDtype};

use crate::{InvalidOption, Result};

/// Dtypes of the tensors in an output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
pub struct CastOptions {
    /// Cast tensors of one dtype to another, such as `float32=bfloat16`; repeatable
    #[cfg_attr(feature = "cli", arg(long, value_name = "FROM=TO"))]
    pub cast: Vec<Cast>,
    /// Cast floating-point tensors to this dtype
    ///
    /// Those of a dtype that --cast names are cast as it says. A GGUF file may also have `q8_0`, `q4_0`, `q4_1`, `q5_0` or `q5_1`, or
    /// with `auto` the 16-bit dtype of its weights. With `q8_0`, a carton of a decoder has its matrices in 8.5 bits a weight, and the rest in float32
    #[cfg_attr(feature = "cli", arg(long, value_name = "DTYPE"))]
    pub dtype: Option<WantedDtype>,
}

/// Dtype of an output's tensors, or a type of GGUF files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedDtype {
    /// A dtype, to which floating-point tensors are cast.
    Dtype(Dtype),
    /// A type of GGUF files, or `auto`. A decoder in a carton can have `q8_0`, too.
    Gguf(&'static str),
}

/// Types of GGUF files that are not dtypes.
const GGUF_TYPES: [&str; 6] = ["auto", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"];

impl From<Dtype> for WantedDtype {
    fn from(dtype: Dtype) -> Self {
        Self::Dtype(dtype)
    }
}

impl fmt::Display for WantedDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dtype(dtype) => dtype.fmt(f),
            Self::Gguf(name) => f.write_str(name),
        }
    }
}

impl FromStr for WantedDtype {
    type Err = UnknownDtype;

    fn from_str(text: &str) -> Result<Self, UnknownDtype> {
        let of_gguf = GGUF_TYPES.iter().find(|name| name.eq_ignore_ascii_case(text));
        of_gguf.map_or_else(|| text.parse().map(Self::Dtype), |name| Ok(Self::Gguf(name)))
    }
}

impl CastOptions {
    /// Returns all casts, those of single dtypes first.
    pub fn all(&self) -> Vec<Cast> {
        let floats = match self.dtype {
            Some(WantedDtype::Dtype(to)) => Some(Cast { from: CastFrom::FloatingPoint, to }),
            _ => None,
        };
        self.cast.iter().copied().chain(floats).collect()
    }

    /// Returns true if the dtype is that of blocks which a decoder in a carton can have.
    pub fn quantizes(&self) -> bool {
        self.dtype == Some(WantedDtype::Gguf("q8_0"))
    }

    /// Returns the casts before the quantization to blocks, whose numbers are those of float32.
    #[must_use]
    pub fn before_blocks(&self) -> Self {
        Self { dtype: Some(Dtype::Float32.into()), ..self.clone() }
    }

    /// Checks the casts before any file is opened.
    ///
    /// # Errors
    /// Those of [`check_casts`](crate::check_casts), and when the dtype is a type of GGUF files.
    pub fn check(&self) -> Result<()> {
        if let Some(WantedDtype::Gguf(name)) = self.dtype {
            return Err(InvalidOption::GgufType { name }.into());
        }
        check_casts(&self.all())
    }

    /// Returns true if no tensor is cast.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl From<Vec<Cast>> for CastOptions {
    fn from(casts: Vec<Cast>) -> Self {
        let mut options = Self::default();
        options.extend(casts);
        options
    }
}

impl Extend<Cast> for CastOptions {
    fn extend<I: IntoIterator<Item = Cast>>(&mut self, casts: I) {
        for cast in casts {
            match cast.from {
                CastFrom::FloatingPoint => self.dtype = Some(cast.to.into()),
                CastFrom::Dtype(_) => self.cast.push(cast),
            }
        }
    }
}

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

impl fmt::Display for Cast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.from, self.to)
    }
}

impl FromStr for Cast {
    type Err = String;

    /// Parses `FROM=TO`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text.split_once('=').ok_or("expected two dtypes, such as float32=bfloat16")?;
        let dtype = |text: &str| text.parse::<Dtype>().map_err(|error: UnknownDtype| error.to_string());
        Ok(Self { from: CastFrom::Dtype(dtype(from)?), to: dtype(to)? })
    }
}

tensor::serde_as_text!(Cast);
tensor::serde_as_text!(WantedDtype);

/// Returns the new dtype for tensors of dtype `from`, if any. A cast of this dtype takes precedence over the cast of all
/// floating-point dtypes.
pub(crate) fn target_dtype(casts: &[Cast], from: Dtype) -> Option<Dtype> {
    let exact = casts.iter().find(|cast| cast.from == CastFrom::Dtype(from));
    let all = || casts.iter().find(|cast| cast.from == CastFrom::FloatingPoint && from.is_floating_point());
    exact.or_else(all).map(|cast| cast.to)
}

/// Checks the casts before any file is opened.
///
/// # Errors
/// When a dtype cannot be cast to the other one, or two casts apply to the same dtype.
pub fn check_casts(casts: &[Cast]) -> Result<()> {
    let mut seen: Vec<CastFrom> = Vec::new();
    for Cast { from, to } in casts {
        let problem = match from {
            CastFrom::Dtype(from) if DtypeConversion::new(*from, *to).is_none() => {
                Some(InvalidOption::CannotCast { from: *from, to: *to })
            }
            CastFrom::FloatingPoint
                if !to.is_floating_point() || DtypeConversion::new(*to, *to).is_none() =>
            {
                Some(InvalidOption::NotFloatingPoint { dtype: *to })
            }
            from if seen.contains(from) => Some(InvalidOption::CastTwice { from: *from }),
            _ => None,
        };
        if let Some(problem) = problem {
            return Err(problem.into());
        }
        seen.push(*from);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cast_is_two_dtypes() {
        let expected = Cast { from: CastFrom::Dtype(Dtype::Float32), to: Dtype::Float16 };
        assert_eq!("f32=half".parse(), Ok(expected));
        assert_eq!(expected.to_string(), "float32=float16");
        assert!("float32".parse::<Cast>().is_err_and(|text| text.contains("float32=bfloat16")));
        assert!("float32=".parse::<Cast>().is_err());
    }
}
