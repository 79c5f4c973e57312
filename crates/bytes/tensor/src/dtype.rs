//! Table of the PyTorch dtypes.
//!
//! Facts: PyTorch 2.15 `torch.dtype`, `torch/storage.py` and `c10/core/ScalarType.h`.
//!
//! A new dtype is a row before the quantized ones, and a number has `decode` and `encode` in `conversion.rs`. Nothing asks for these:
//! `numpy_dtype` in `open/values/array_text.rs`, if NumPy can show its elements; `newer_storage_class` in `torchscript/record.rs`,
//! if TorchScript alone has its storage class; its number in `newer_dtype_name` in `torchscript/note.rs`; and the names in the Python
//! package's `_dtypes.py`.

/// Type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
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

/// Table row: the dtype, PyTorch's name, its storage class in `torch`, bytes per element, and bytes per component (the
/// unit of a change of byte order).
struct TorchDtypeRow(Dtype, &'static str, StorageClass, u8, u8);

#[derive(Clone, Copy)]
enum StorageClass {
    /// Class that `torch.save` writes.
    Python(&'static str),
    /// Class that only TorchScript archives name; `torch.save` writes an `UntypedStorage` instead.
    Cpp(&'static str),
}
use StorageClass::{Cpp, Python};

const TABLE: &[TorchDtypeRow] = &[
    TorchDtypeRow(Dtype::Float64, "float64", Python("DoubleStorage"), 8, 8),
    TorchDtypeRow(Dtype::Float32, "float32", Python("FloatStorage"), 4, 4),
    TorchDtypeRow(Dtype::Float16, "float16", Python("HalfStorage"), 2, 2),
    TorchDtypeRow(Dtype::BFloat16, "bfloat16", Python("BFloat16Storage"), 2, 2),
    TorchDtypeRow(Dtype::Int64, "int64", Python("LongStorage"), 8, 8),
    TorchDtypeRow(Dtype::Int32, "int32", Python("IntStorage"), 4, 4),
    TorchDtypeRow(Dtype::Int16, "int16", Python("ShortStorage"), 2, 2),
    TorchDtypeRow(Dtype::Int8, "int8", Python("CharStorage"), 1, 1),
    TorchDtypeRow(Dtype::UInt8, "uint8", Python("ByteStorage"), 1, 1),
    TorchDtypeRow(Dtype::Bool, "bool", Python("BoolStorage"), 1, 1),
    TorchDtypeRow(Dtype::Complex128, "complex128", Python("ComplexDoubleStorage"), 16, 8),
    TorchDtypeRow(Dtype::Complex64, "complex64", Python("ComplexFloatStorage"), 8, 4),
    TorchDtypeRow(Dtype::Complex32, "complex32", Cpp("ComplexHalfStorage"), 4, 2),
    TorchDtypeRow(Dtype::BComplex32, "bcomplex32", Cpp("BComplex32Storage"), 4, 2),
    TorchDtypeRow(Dtype::UInt64, "uint64", Cpp("UInt64Storage"), 8, 8),
    TorchDtypeRow(Dtype::UInt32, "uint32", Cpp("UInt32Storage"), 4, 4),
    TorchDtypeRow(Dtype::UInt16, "uint16", Cpp("UInt16Storage"), 2, 2),
    TorchDtypeRow(Dtype::Float8E4M3Fn, "float8_e4m3fn", Cpp("Float8_e4m3fnStorage"), 1, 1),
    TorchDtypeRow(Dtype::Float8E4M3FnUz, "float8_e4m3fnuz", Cpp("Float8_e4m3fnuzStorage"), 1, 1),
    TorchDtypeRow(Dtype::Float8E5M2, "float8_e5m2", Cpp("Float8_e5m2Storage"), 1, 1),
    TorchDtypeRow(Dtype::Float8E5M2FnUz, "float8_e5m2fnuz", Cpp("Float8_e5m2fnuzStorage"), 1, 1),
    TorchDtypeRow(Dtype::Float8E8M0FnU, "float8_e8m0fnu", Cpp("Float8_e8m0fnuStorage"), 1, 1),
    TorchDtypeRow(Dtype::Float4E2M1FnX2, "float4_e2m1fn_x2", Cpp("Float4_e2m1fn_x2Storage"), 1, 1),
    TorchDtypeRow(Dtype::Bits16, "bits16", Cpp("Bits16Storage"), 2, 2),
    TorchDtypeRow(Dtype::Bits8, "bits8", Cpp("Bits8Storage"), 1, 1),
    TorchDtypeRow(Dtype::Bits4X2, "bits4x2", Cpp("Bits4x2Storage"), 1, 1),
    TorchDtypeRow(Dtype::Bits2X4, "bits2x4", Cpp("Bits2x4Storage"), 1, 1),
    TorchDtypeRow(Dtype::Bits1X8, "bits1x8", Cpp("Bits1x8Storage"), 1, 1),
    TorchDtypeRow(Dtype::QInt8, "qint8", Python("QInt8Storage"), 1, 1),
    TorchDtypeRow(Dtype::QUInt8, "quint8", Python("QUInt8Storage"), 1, 1),
    TorchDtypeRow(Dtype::QInt32, "qint32", Python("QInt32Storage"), 4, 4),
    TorchDtypeRow(Dtype::QUInt4X2, "quint4x2", Python("QUInt4x2Storage"), 1, 1),
    TorchDtypeRow(Dtype::QUInt2X4, "quint2x4", Python("QUInt2x4Storage"), 1, 1),
];

impl Dtype {
    /// Iterates over all dtypes in the table's order.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    /// Returns the dtype that PyTorch calls `name`, such as `bfloat16`.
    pub fn from_name(name: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Returns the dtype of a typed storage class of the module `torch`, such as `BFloat16Storage`, or `UInt16Storage`
    /// in a TorchScript archive.
    pub fn from_storage_class(class: &str) -> Option<Self> {
        TABLE.iter().find(|row| matches!(row.2, Python(name) | Cpp(name) if name == class)).map(|row| row.0)
    }

    fn row(self) -> &'static TorchDtypeRow {
        TABLE.get(self as usize).expect("a test compares each dtype with its row")
    }

    /// Returns PyTorch's name without `torch.`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Returns the typed storage class in the module `torch`, where Python has one.
    pub fn storage_class(self) -> Option<&'static str> {
        match self.row().2 {
            Python(name) => Some(name),
            Cpp(_) => None,
        }
    }

    /// Returns true if tensors of this dtype need a quantizer, which defines the values of their elements.
    pub fn is_quantized(self) -> bool {
        matches!(self, Self::QInt8 | Self::QUInt8 | Self::QInt32 | Self::QUInt4X2 | Self::QUInt2X4)
    }

    /// Returns the size of an element in bytes.
    pub fn size(self) -> u64 {
        u64::from(self.row().3)
    }

    /// Returns the size of a component in bytes: half an element for complex numbers, else an element. A change of byte
    /// order reverses components.
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
