//! Declarations of inputs and outputs as texts, such as `image=float32[batch,3,224,224]`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize as _, Deserializer};
use tensor::Dtype;

use super::{DeclaredInput, DeclaredOutput};
use crate::Dim;

/// Parses `NAME=DTYPE[SHAPE]`; a dimension is a number, or a name for any size.
fn parse(text: &str) -> Result<(String, Dtype, Vec<Dim>), String> {
    const EXPECTED: &str = "expected NAME=DTYPE[SHAPE], such as image=float32[batch,3,224,224]";
    let (name, kind) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or(EXPECTED)?;
    let (kind, shape) = kind.split_once('[').ok_or(EXPECTED)?;
    let shape = shape.strip_suffix(']').ok_or(EXPECTED)?;
    let dims = shape.split(',').map(str::trim).filter(|_| !shape.trim().is_empty());
    let dim = |text: &str| match text.parse::<u64>() {
        Ok(size) if i64::try_from(size).is_ok() => Ok(Dim::Size(size)),
        Err(_) if is_symbol(text) => Ok(Dim::Symbol(text.to_owned())),
        _ => Err(format!("`{text}` is neither a size nor a name for one")),
    };
    let shape = dims.map(dim).collect::<Result<_, _>>()?;
    let dtype = kind.parse().map_err(|error: tensor::UnknownDtype| error.to_string())?;
    Ok((name.to_owned(), dtype, shape))
}

fn is_symbol(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn write(f: &mut fmt::Formatter<'_>, name: &str, dtype: Dtype, shape: &[Dim]) -> fmt::Result {
    let dims = shape.iter().map(|dim| match dim {
        Dim::Symbol(name) => name.clone(),
        Dim::Size(size) => size.to_string(),
    });
    write!(f, "{name}={dtype}[{}]", dims.collect::<Vec<_>>().join(","))
}

/// Reads names, of which a text may have several with commas between them.
pub(super) fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    Ok(texts.iter().flat_map(|text| text.split(',')).map(str::to_owned).collect())
}

impl FromStr for DeclaredInput {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).map(|(name, dtype, shape)| Self { name, dtype, shape })
    }
}

impl fmt::Display for DeclaredInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, &self.name, self.dtype, &self.shape)
    }
}

impl FromStr for DeclaredOutput {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).map(|(name, dtype, shape)| Self { name, dtype, shape })
    }
}

impl fmt::Display for DeclaredOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, &self.name, self.dtype, &self.shape)
    }
}

tensor::serde_as_text!(DeclaredInput, DeclaredOutput);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_has_a_dtype_and_a_shape() {
        let symbol = Dim::Symbol("batch".to_owned());
        for (text, name, dtype, shape) in [
            ("x=float32[batch, 3]", "x", Dtype::Float32, vec![symbol, Dim::Size(3)]),
            ("n=i64[]", "n", Dtype::Int64, vec![]),
        ] {
            let declared = DeclaredInput { name: name.to_owned(), dtype, shape };
            assert_eq!(text.parse().as_ref(), Ok(&declared));
            assert_eq!(declared.to_string().parse(), Ok(declared));
        }
        for wrong in
            ["x", "=float32[]", "x=float32", "x=float32[", "x=float99[1]", "x=int64[-1]", "x=int64[1,]"]
        {
            assert!(wrong.parse::<DeclaredOutput>().is_err(), "{wrong}");
        }
    }
}
