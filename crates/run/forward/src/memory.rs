//! Checked allocation of memory whose size depends on the input.

use tensor::Tensor;

use crate::{Problem, Result};

/// Returns the product of sizes.
///
/// # Errors
/// When the product does not fit the address space.
pub(crate) fn checked_product(sizes: &[usize]) -> Result<usize> {
    let product = sizes.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
    product
        .filter(|product| isize::try_from(*product).is_ok())
        .ok_or(Problem::Memory { nbytes: u64::MAX }.into())
}

/// Allocates a vector of `count` zeros.
///
/// # Errors
/// When the zeros do not fit in memory.
pub(crate) fn zeros<T: Clone + Default>(count: usize) -> Result<Vec<T>> {
    let mut out = Vec::new();
    out.try_reserve_exact(count).map_err(|_| Problem::Memory { nbytes: nbytes_of::<T>(count) })?;
    out.resize(count, T::default());
    Ok(out)
}

pub(crate) fn nbytes_of<T>(count: usize) -> u64 {
    (count as u64).saturating_mul(size_of::<T>() as u64)
}

/// Reads the bytes of a tensor in C order.
///
/// # Errors
/// When they cannot be read or do not fit in memory.
pub(crate) fn gather_bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    let nbytes = tensor.nbytes();
    let mut out = Vec::new();
    let len = usize::try_from(nbytes).map_err(|_| Problem::Memory { nbytes })?;
    out.try_reserve_exact(len).map_err(|_| Problem::Memory { nbytes })?;
    byte_source::Blob::write_to(&tensor.gathered(), &mut out)?;
    Ok(out)
}

/// Returns a size as a number of elements in memory.
///
/// # Errors
/// When it does not fit in memory.
pub(crate) fn size_in_memory(n: u64) -> Result<usize> {
    Ok(usize::try_from(n).map_err(|_| Problem::Memory { nbytes: n })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_give_the_size_in_bytes() {
        let nbytes = |error: crate::Error| match error.downcast().expect("its own problem") {
            Problem::Memory { nbytes } => nbytes,
            other => panic!("{other}"),
        };
        assert_eq!(nbytes(zeros::<f64>(1 << 60).expect_err("too large")), 1 << 63);
        assert_eq!(nbytes(zeros::<f64>(usize::MAX).expect_err("too large")), u64::MAX);
        assert_eq!(nbytes(checked_product(&[1 << 32, 1 << 31]).expect_err("too large")), u64::MAX);
        assert_eq!(checked_product(&[3, 5, 7]).expect("small"), 105);
    }
}
