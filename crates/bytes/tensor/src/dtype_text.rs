//! Dtypes as texts: PyTorch's names, and those of other libraries.

use std::fmt;
use std::str::FromStr;

use crate::Dtype;

/// Names of dtypes from Python, C and safetensors.
const ALIASES: &[(&str, Dtype)] = &[
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
    ("single", Dtype::Float32),
    ("bfloat", Dtype::BFloat16),
    ("f8_e4m3", Dtype::Float8E4M3Fn),
    ("fp8_e4m3", Dtype::Float8E4M3Fn),
    ("fp8_e4m3fn", Dtype::Float8E4M3Fn),
    ("float8_e4m3", Dtype::Float8E4M3Fn),
    ("e4m3", Dtype::Float8E4M3Fn),
    ("e4m3fn", Dtype::Float8E4M3Fn),
    ("f8_e5m2", Dtype::Float8E5M2),
    ("fp8_e5m2", Dtype::Float8E5M2),
    ("e5m2", Dtype::Float8E5M2),
    ("f8_e8m0", Dtype::Float8E8M0FnU),
    ("long", Dtype::Int64),
    ("i64", Dtype::Int64),
    ("int", Dtype::Int32),
    ("i32", Dtype::Int32),
    ("short", Dtype::Int16),
    ("i16", Dtype::Int16),
    ("char", Dtype::Int8),
    ("i8", Dtype::Int8),
    ("u64", Dtype::UInt64),
    ("u32", Dtype::UInt32),
    ("u16", Dtype::UInt16),
    ("byte", Dtype::UInt8),
    ("u8", Dtype::UInt8),
    ("c64", Dtype::Complex64),
    ("c128", Dtype::Complex128),
];

/// Names that stand for several dtypes.
const AMBIGUOUS: &[&str] = &["fp8", "float8", "f8", "8bit", "8-bit"];
/// What the names of quantization schemes begin with.
const SCHEMES: &[&str] = &[
    "awq", "fp4", "gguf", "gptq", "int4", "iq", "mxfp", "nf4", "nvfp4", "q2", "q3", "q4", "q5", "q6", "q8",
    "4bit", "4-bit",
];

/// Text that is not the name of a dtype.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDtype {
    text: String,
    /// Dtypes that may be meant.
    similar: Vec<Dtype>,
    /// True if the name is that of a way to quantize.
    is_scheme: bool,
}

impl fmt::Display for UnknownDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a dtype", self.text)?;
        let names: Vec<&str> = self.similar.iter().map(|dtype| dtype.name()).collect();
        if !names.is_empty() {
            return write!(f, "; did you mean {}?", names.join(" or "));
        }
        f.write_str(if self.is_scheme {
            ": it is a way to quantize; a GGUF file can have q8_0, q4_0, q4_1, q5_0 or q5_1, and `llama-quantize` of llama.cpp \
             makes other types of one"
        } else {
            ": PyTorch's names are float32, bfloat16, float16, int64 and so on"
        })
    }
}

impl std::error::Error for UnknownDtype {}

impl FromStr for Dtype {
    type Err = UnknownDtype;

    /// Parses PyTorch's name, with or without `torch.`, or the one of another library.
    fn from_str(text: &str) -> Result<Self, UnknownDtype> {
        let lower = text.trim().to_ascii_lowercase();
        let name = lower.strip_prefix("torch.").unwrap_or(&lower);
        let alias = || ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, dtype)| *dtype);
        Self::from_name(name).or_else(alias).ok_or_else(|| {
            let nearest = Self::all().min_by_key(|dtype| strsim::osa_distance(name, dtype.name()));
            // Two of three letters are another word.
            let mistakes = name.chars().count().div_euclid(3).min(2);
            let nearest = nearest.filter(|dtype| strsim::osa_distance(name, dtype.name()) <= mistakes);
            let is_scheme = SCHEMES.iter().any(|scheme| name.starts_with(scheme));
            let similar = match nearest {
                _ if AMBIGUOUS.contains(&name) => vec![Self::Float8E4M3Fn, Self::Float8E5M2],
                Some(nearest) if !is_scheme => vec![nearest],
                _ => Vec::new(),
            };
            UnknownDtype { text: text.to_owned(), similar, is_scheme }
        })
    }
}

/// Serialises a type as its text: its `Display` is written, and its `FromStr` reads it.
#[macro_export]
macro_rules! serde_as_text {
    ($($type:ty),+) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}

serde_as_text!(Dtype);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtypes_have_the_names_of_several_libraries() {
        for name in ["bfloat16", "torch.bfloat16", "bf16", "BF16"] {
            assert_eq!(name.parse(), Ok(Dtype::BFloat16));
        }
        let error = |text: &str| text.parse::<Dtype>().expect_err("not a dtype").to_string();
        assert_eq!(error("flaot32"), "`flaot32` is not a dtype; did you mean float32?");
        assert!(error("").contains("PyTorch's names") && error("foo").contains("PyTorch's names"));
        assert_eq!(error("fp8"), "`fp8` is not a dtype; did you mean float8_e4m3fn or float8_e5m2?");
        assert_eq!("e4m3fn".parse(), Ok(Dtype::Float8E4M3Fn));
        for scheme in ["nf4", "int4", "Q4_K_M"] {
            assert!(
                error(scheme).contains("is not a dtype: it is a way to quantize; a GGUF file can have q8_0")
            );
        }
    }
}
