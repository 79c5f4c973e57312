//! Table of the types of tensors: elements that stand alone, and blocks of elements that share their scales.
//!
//! Facts: `GGMLQuantizationType` and `GGML_QUANT_SIZES` of the Python package `gguf` 0.19.0; for words of blocks,
//! `gguf_convert_endian.py` in it.

use tensor::Dtype;

/// Type of a tensor's elements.
#[derive(Debug, PartialEq, Eq)]
pub struct GgmlType {
    /// Number in a file.
    pub id: u32,
    pub name: &'static str,
    /// Number of elements in a block.
    pub block_len: u64,
    /// Length of a block in bytes.
    pub block_bytes: u64,
    /// Equivalent in PyTorch; `None` if a block has several elements.
    pub dtype: Option<Dtype>,
    /// Offsets in a block of the words of two bytes, which depend on the byte order of the file; `None` if nothing defines them.
    pub words: Option<&'static [u64]>,
}

const fn element(id: u32, name: &'static str, dtype: Dtype, block_bytes: u64) -> GgmlType {
    GgmlType { id, name, block_len: 1, block_bytes, dtype: Some(dtype), words: None }
}

const fn block(id: u32, name: &'static str, block_len: u64, block_bytes: u64) -> GgmlType {
    GgmlType { id, name, block_len, block_bytes, dtype: None, words: None }
}

const fn words(
    words: &'static [u64],
    id: u32,
    name: &'static str,
    block_len: u64,
    block_bytes: u64,
) -> GgmlType {
    GgmlType { words: Some(words), ..block(id, name, block_len, block_bytes) }
}

static TYPES: &[GgmlType] = &[
    element(0, "F32", Dtype::Float32, 4),
    element(1, "F16", Dtype::Float16, 2),
    words(&[0], 2, "Q4_0", 32, 18),
    block(3, "Q4_1", 32, 20),
    block(6, "Q5_0", 32, 22),
    block(7, "Q5_1", 32, 24),
    words(&[0], 8, "Q8_0", 32, 34),
    block(9, "Q8_1", 32, 40),
    block(10, "Q2_K", 256, 84),
    block(11, "Q3_K", 256, 110),
    words(&[0, 2], 12, "Q4_K", 256, 144),
    block(13, "Q5_K", 256, 176),
    words(&[208], 14, "Q6_K", 256, 210),
    block(15, "Q8_K", 256, 292),
    block(16, "IQ2_XXS", 256, 66),
    block(17, "IQ2_XS", 256, 74),
    block(18, "IQ3_XXS", 256, 98),
    block(19, "IQ1_S", 256, 50),
    block(20, "IQ4_NL", 32, 18),
    block(21, "IQ3_S", 256, 110),
    block(22, "IQ2_S", 256, 82),
    block(23, "IQ4_XS", 256, 136),
    element(24, "I8", Dtype::Int8, 1),
    element(25, "I16", Dtype::Int16, 2),
    element(26, "I32", Dtype::Int32, 4),
    element(27, "I64", Dtype::Int64, 8),
    element(28, "F64", Dtype::Float64, 8),
    block(29, "IQ1_M", 256, 56),
    element(30, "BF16", Dtype::BFloat16, 2),
    block(34, "TQ1_0", 256, 54),
    block(35, "TQ2_0", 256, 66),
    words(&[], 39, "MXFP4", 32, 17),
    words(&[], 40, "NVFP4", 64, 36),
    block(41, "Q1_0", 128, 18),
];

impl GgmlType {
    /// Returns all types, in the order of their numbers.
    pub fn all() -> &'static [Self] {
        TYPES
    }

    /// Returns the type with a number.
    pub fn from_id(id: u32) -> Option<&'static Self> {
        TYPES.iter().find(|row| row.id == id)
    }

    /// Returns the type with a name.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        TYPES.iter().find(|row| row.name == name)
    }

    /// Returns the type whose elements are those of a dtype.
    pub fn from_dtype(dtype: Dtype) -> Option<&'static Self> {
        TYPES.iter().find(|row| row.dtype == Some(dtype))
    }

    /// Returns the length in bytes of a tensor with this shape, whose last dimension is that of a row; `None` if a row does not
    /// consist of whole blocks, or the length does not fit 63 bits.
    pub fn nbytes(&self, shape: &[u64]) -> Option<u64> {
        let row = shape.last().copied().unwrap_or(1);
        let numel = shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size))?;
        let nbytes = numel.checked_div(self.block_len)?.checked_mul(self.block_bytes)?;
        (row.is_multiple_of(self.block_len) && i64::try_from(nbytes).is_ok()).then_some(nbytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_agrees_with_itself() {
        assert!(TYPES.is_sorted_by(|first, second| first.id < second.id));
        for row in TYPES {
            assert_eq!(GgmlType::from_name(row.name), Some(row));
            if let Some(dtype) = row.dtype {
                assert_eq!((row.block_len, row.block_bytes), (1, dtype.size()), "{}", row.name);
                assert_eq!(GgmlType::from_dtype(dtype), Some(row));
            }
        }
    }

    #[test]
    fn a_row_consists_of_whole_blocks() {
        let q4_0 = GgmlType::from_id(2).expect("it is known");
        assert_eq!(q4_0.nbytes(&[3, 64]), Some(3 * 2 * 18));
        assert_eq!(q4_0.nbytes(&[64, 3]), None);
        assert_eq!(q4_0.nbytes(&[]), None);
        assert_eq!(q4_0.nbytes(&[0, 32]), Some(0));
        assert_eq!(TYPES[0].nbytes(&[]), Some(4));
        assert_eq!(TYPES[0].nbytes(&[1 << 61]), None);
        assert_eq!(TYPES[0].nbytes(&[1 << 33, 1 << 33]), None);
    }
}
