//! Mapping between the format's dtypes and PyTorch's.
//!
//! Facts: `Dtype` in `safetensors/src/tensor.rs` 0.8. `F4` counts single values in its shape, PyTorch's `float4_e2m1fn_x2`
//! counts pairs. PyTorch has neither `F6_E2M3` nor `F6_E3M2`.

use tensor::Dtype;

/// A dtype of the format and its equivalent in PyTorch.
pub(crate) struct DtypeRow {
    pub(crate) name: &'static str,
    /// Dtype of the official crate, whose order is the order of the tensors in a file.
    pub(crate) official: safetensors::Dtype,
    pub(crate) torch: Dtype,
    /// Number of the format's elements in one element of PyTorch.
    pub(crate) pack_factor: u64,
}

const fn row(name: &'static str, official: safetensors::Dtype, torch: Dtype) -> DtypeRow {
    DtypeRow { name, official, torch, pack_factor: 1 }
}

const DTYPE_ROWS: &[DtypeRow] = &[
    row("F64", safetensors::Dtype::F64, Dtype::Float64),
    row("F32", safetensors::Dtype::F32, Dtype::Float32),
    row("F16", safetensors::Dtype::F16, Dtype::Float16),
    row("BF16", safetensors::Dtype::BF16, Dtype::BFloat16),
    row("I64", safetensors::Dtype::I64, Dtype::Int64),
    row("I32", safetensors::Dtype::I32, Dtype::Int32),
    row("I16", safetensors::Dtype::I16, Dtype::Int16),
    row("I8", safetensors::Dtype::I8, Dtype::Int8),
    row("U64", safetensors::Dtype::U64, Dtype::UInt64),
    row("U32", safetensors::Dtype::U32, Dtype::UInt32),
    row("U16", safetensors::Dtype::U16, Dtype::UInt16),
    row("U8", safetensors::Dtype::U8, Dtype::UInt8),
    row("BOOL", safetensors::Dtype::BOOL, Dtype::Bool),
    row("C64", safetensors::Dtype::C64, Dtype::Complex64),
    row("F8_E4M3", safetensors::Dtype::F8_E4M3, Dtype::Float8E4M3Fn),
    row("F8_E4M3FNUZ", safetensors::Dtype::F8_E4M3FNUZ, Dtype::Float8E4M3FnUz),
    row("F8_E5M2", safetensors::Dtype::F8_E5M2, Dtype::Float8E5M2),
    row("F8_E5M2FNUZ", safetensors::Dtype::F8_E5M2FNUZ, Dtype::Float8E5M2FnUz),
    row("F8_E8M0", safetensors::Dtype::F8_E8M0, Dtype::Float8E8M0FnU),
    DtypeRow { pack_factor: 2, ..row("F4", safetensors::Dtype::F4, Dtype::Float4E2M1FnX2) },
];

pub(crate) fn row_by_name(name: &str) -> Option<&'static DtypeRow> {
    DTYPE_ROWS.iter().find(|row| row.name == name)
}

/// Returns the row for a dtype of PyTorch.
pub(crate) fn row_by_dtype(dtype: Dtype) -> Option<&'static DtypeRow> {
    DTYPE_ROWS.iter().find(|row| row.torch == dtype)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_and_sizes_are_those_of_the_official_crate() {
        for row in DTYPE_ROWS {
            assert_eq!(serde_json::to_value(row.official).expect("a name"), row.name);
            assert_eq!(row.official.bitsize() as u64 * row.pack_factor, row.torch.size() * 8, "{}", row.name);
        }
    }
}
