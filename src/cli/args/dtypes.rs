//! Arguments for the dtypes of an output.

use clap::Args;
use pipeline::{Cast, CastFrom, Dtype};

/// Aliases of dtype names from Python, C and safetensors.
const DTYPE_ALIASES: &[(&str, Dtype)] = &[
    ("double", Dtype::Float64),
    ("fp64", Dtype::Float64),
    ("f64", Dtype::Float64),
    ("float", Dtype::Float32),
    ("fp32", Dtype::Float32),
    ("f32", Dtype::Float32),
    ("half", Dtype::Float16),
    ("fp16", Dtype::Float16),
    ("f16", Dtype::Float16),
    ("bf16", Dtype::BFloat16),
    ("f8_e4m3", Dtype::Float8E4M3Fn),
    ("f8_e5m2", Dtype::Float8E5M2),
    ("f8_e8m0", Dtype::Float8E8M0FnU),
    ("long", Dtype::Int64),
    ("i64", Dtype::Int64),
    ("int", Dtype::Int32),
    ("i32", Dtype::Int32),
    ("i16", Dtype::Int16),
    ("i8", Dtype::Int8),
    ("u64", Dtype::UInt64),
    ("u32", Dtype::UInt32),
    ("u16", Dtype::UInt16),
    ("u8", Dtype::UInt8),
    ("c64", Dtype::Complex64),
    ("c128", Dtype::Complex128),
];

/// The dtypes of the output.
#[derive(Args, Debug)]
pub(crate) struct DtypeArgs {
    /// Convert tensors of one dtype into another, such as `float32=bfloat16`; repeatable
    #[arg(long, value_name = "FROM=TO", value_parser = parse_cast)]
    pub(crate) cast: Vec<Cast>,
    /// Convert all floating-point tensors to this dtype, except those that --cast names
    #[arg(long, value_name = "DTYPE", value_parser = parse_dtype)]
    pub(crate) dtype: Option<Dtype>,
}

impl DtypeArgs {
    /// Returns the dtype casts for the library.
    pub(crate) fn casts(&self) -> Vec<Cast> {
        let all = self.dtype.map(|to| Cast { from: CastFrom::FloatingPoint, to });
        self.cast.iter().copied().chain(all).collect()
    }
}

fn parse_cast(text: &str) -> Result<Cast, String> {
    let (from, to) = text.split_once('=').ok_or("expected two dtypes, such as float32=bfloat16")?;
    Ok(Cast { from: CastFrom::Dtype(parse_dtype(from)?), to: parse_dtype(to)? })
}

pub(super) fn parse_dtype(text: &str) -> Result<Dtype, String> {
    let lower = text.trim().to_ascii_lowercase();
    let name = lower.strip_prefix("torch.").unwrap_or(&lower);
    let short = || DTYPE_ALIASES.iter().find(|(short, _)| *short == name).map(|(_, dtype)| *dtype);
    Dtype::from_name(name).or_else(short).ok_or_else(|| {
        let nearest = Dtype::all().min_by_key(|dtype| strsim::osa_distance(name, dtype.name()));
        match nearest.filter(|dtype| strsim::osa_distance(name, dtype.name()) <= 2) {
            Some(dtype) => format!("`{text}` is not a dtype; did you mean {dtype}?"),
            None => format!(
                "`{text}` is not a dtype: PyTorch's names are float32, bfloat16, float16, int64 and so on"
            ),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtypes_have_the_names_of_several_libraries() {
        for name in ["bfloat16", "torch.bfloat16", "bf16", "BF16"] {
            assert_eq!(parse_dtype(name), Ok(Dtype::BFloat16));
        }
        let expected = Cast { from: CastFrom::Dtype(Dtype::Float32), to: Dtype::Float16 };
        assert_eq!(parse_cast("f32=half"), Ok(expected));
        assert_eq!(parse_dtype("flaot32"), Err("`flaot32` is not a dtype; did you mean float32?".to_owned()));
        assert!(parse_dtype("").is_err_and(|text| text.contains("PyTorch's names")));
        assert!(parse_cast("float32").is_err_and(|text| text.contains("float32=bfloat16")));
        assert!(parse_cast("float32=").is_err());
    }
}
