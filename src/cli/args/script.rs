//! Arguments for a TorchScript module and its inputs and outputs.

use clap::Args;
use pipeline::{DeclaredInput, DeclaredOutput, Dim, Dtype, ScriptOptions};

use super::dtypes::parse_dtype;

/// How a TorchScript module is called.
#[derive(Args, Debug)]
pub(crate) struct ScriptArgs {
    /// The dtype and shape of an input of a TorchScript module, such as `image=float32[batch,3,224,224]`; repeatable
    #[arg(long = "input", value_name = "NAME=DTYPE[SHAPE]", value_parser = parse_input)]
    inputs: Vec<DeclaredInput>,
    /// The dtype and shape of an output of a TorchScript module, such as `scores=float32[batch,1000]`, which --to triton
    /// needs; repeatable
    #[arg(long = "output-type", value_name = "NAME=DTYPE[SHAPE]", value_parser = parse_output)]
    output_types: Vec<DeclaredOutput>,
    /// The names of what a TorchScript module returns, such as `boxes,scores` [default: those of a named tuple or a dict,
    /// else output, or that with numbers]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    output_names: Vec<String>,
    /// Keep a TorchScript module as it is, because it takes and returns a dict
    #[arg(long, conflicts_with_all = ["inputs", "output_types", "output_names", "errors"])]
    no_wrap: bool,
}

impl ScriptArgs {
    /// Returns the TorchScript options for the library.
    pub(crate) fn options(&self) -> ScriptOptions {
        ScriptOptions {
            inputs: self.inputs.clone(),
            outputs: self.output_types.clone(),
            output_names: self.output_names.clone(),
            keep_unchanged: self.no_wrap,
        }
    }
}

fn parse_input(text: &str) -> Result<DeclaredInput, String> {
    let (name, dtype, shape) = parse_port(text)?;
    Ok(DeclaredInput { name, dtype, shape })
}

fn parse_output(text: &str) -> Result<DeclaredOutput, String> {
    let (name, dtype, shape) = parse_port(text)?;
    Ok(DeclaredOutput { name, dtype, shape })
}

/// Parses `NAME=DTYPE[SHAPE]`; a dimension is a number, or a name for any size.
fn parse_port(text: &str) -> Result<(String, Dtype, Vec<Dim>), String> {
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
    Ok((name.to_owned(), parse_dtype(kind)?, shape))
}

fn is_symbol(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

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
            assert_eq!(parse_input(text), Ok(DeclaredInput { name: name.to_owned(), dtype, shape }));
        }
        for wrong in
            ["x", "=float32[]", "x=float32", "x=float32[", "x=float99[1]", "x=int64[-1]", "x=int64[1,]"]
        {
            assert!(parse_input(wrong).is_err(), "{wrong}");
        }
    }
}
