//! The dtype table.
//!
//! Facts: PyTorch 2.15 `torch.dtype`, `torch/storage.py` and `c10/core/ScalarType.h`.

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names are PyTorch's own; the table below has them in its spelling")]
pub enum Dtype {
    Float64,
    Float32,
    Float16,
    BFloat16,
    Int64,
    Int32,
    Int16,
    Int8,
    UInt8,
    Bool,
    Complex128,
    Complex64,
    Complex32,
    BComplex32,
    UInt64,
    UInt32,
    UInt16,
    Float8E4M3Fn,
    Float8E4M3FnUz,
    Float8E5M2,
    Float8E5M2FnUz,
    Float8E8M0FnU,
    Float4E2M1FnX2,
    Bits16,
    Bits8,
    Bits4X2,
    Bits2X4,
    Bits1X8,
    QInt8,
    QUInt8,
    QInt32,
    QUInt4X2,
    QUInt2X4,
}

/// One row: the dtype, PyTorch's name, its storage class in `torch`, bytes an element, and bytes a
/// component (what a change of byte order swaps).
struct Row(Dtype, &'static str, Option<&'static str>, u8, u8);

const TABLE: &[Row] = &[
    Row(Dtype::Float64, "float64", Some("DoubleStorage"), 8, 8),
    Row(Dtype::Float32, "float32", Some("FloatStorage"), 4, 4),
    Row(Dtype::Float16, "float16", Some("HalfStorage"), 2, 2),
    Row(Dtype::BFloat16, "bfloat16", Some("BFloat16Storage"), 2, 2),
    Row(Dtype::Int64, "int64", Some("LongStorage"), 8, 8),
    Row(Dtype::Int32, "int32", Some("IntStorage"), 4, 4),
    Row(Dtype::Int16, "int16", Some("ShortStorage"), 2, 2),
    Row(Dtype::Int8, "int8", Some("CharStorage"), 1, 1),
    Row(Dtype::UInt8, "uint8", Some("ByteStorage"), 1, 1),
    Row(Dtype::Bool, "bool", Some("BoolStorage"), 1, 1),
    Row(Dtype::Complex128, "complex128", Some("ComplexDoubleStorage"), 16, 8),
    Row(Dtype::Complex64, "complex64", Some("ComplexFloatStorage"), 8, 4),
    Row(Dtype::Complex32, "complex32", None, 4, 2),
    Row(Dtype::BComplex32, "bcomplex32", None, 4, 2),
    Row(Dtype::UInt64, "uint64", None, 8, 8),
    Row(Dtype::UInt32, "uint32", None, 4, 4),
    Row(Dtype::UInt16, "uint16", None, 2, 2),
    Row(Dtype::Float8E4M3Fn, "float8_e4m3fn", None, 1, 1),
    Row(Dtype::Float8E4M3FnUz, "float8_e4m3fnuz", None, 1, 1),
    Row(Dtype::Float8E5M2, "float8_e5m2", None, 1, 1),
    Row(Dtype::Float8E5M2FnUz, "float8_e5m2fnuz", None, 1, 1),
    Row(Dtype::Float8E8M0FnU, "float8_e8m0fnu", None, 1, 1),
    Row(Dtype::Float4E2M1FnX2, "float4_e2m1fn_x2", None, 1, 1),
    Row(Dtype::Bits16, "bits16", None, 2, 2),
    Row(Dtype::Bits8, "bits8", None, 1, 1),
    Row(Dtype::Bits4X2, "bits4x2", None, 1, 1),
    Row(Dtype::Bits2X4, "bits2x4", None, 1, 1),
    Row(Dtype::Bits1X8, "bits1x8", None, 1, 1),
    Row(Dtype::QInt8, "qint8", Some("QInt8Storage"), 1, 1),
    Row(Dtype::QUInt8, "quint8", Some("QUInt8Storage"), 1, 1),
    Row(Dtype::QInt32, "qint32", Some("QInt32Storage"), 4, 4),
    Row(Dtype::QUInt4X2, "quint4x2", Some("QUInt4x2Storage"), 1, 1),
    Row(Dtype::QUInt2X4, "quint2x4", Some("QUInt2x4Storage"), 1, 1),
];

impl Dtype {
    /// All dtypes, in the table's order.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    /// The dtype that PyTorch calls `name`, such as `bfloat16`.
    pub fn from_name(name: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// The dtype of a typed storage class of the module `torch`, such as `BFloat16Storage`.
    pub fn from_storage_class(class: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.2 == Some(class)).map(|row| row.0)
    }

    fn row(self) -> &'static Row {
        TABLE.iter().find(|row| row.0 == self).expect("a test counts that every dtype has its row")
    }

    /// PyTorch's name without `torch.`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The typed storage class in the module `torch`, where there is one.
    pub fn storage_class(self) -> Option<&'static str> {
        self.row().2
    }

    /// Bytes an element.
    pub fn size(self) -> u64 {
        u64::from(self.row().3)
    }

    /// Bytes a component: half of an element for complex numbers, else an element. This is what a
    /// change of byte order swaps.
    pub fn component_size(self) -> u64 {
        u64::from(self.row().4)
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_has_one_row() {
        // The last variant's discriminant counts the variants before it.
        assert_eq!(TABLE.len(), Dtype::QUInt2X4 as usize + 1);
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.0 as usize, index, "{}", row.1);
            assert_eq!(Dtype::from_name(row.1), Some(row.0));
        }
    }
}
