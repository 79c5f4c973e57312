//! Memory whose size follows from input: checked, and refused with an error.

use crate::{Error, Result};

/// The product of sizes.
///
/// # Errors
/// When it does not fit the address space.
pub(crate) fn product(sizes: &[usize]) -> Result<usize> {
    let product = sizes.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
    product.filter(|product| isize::try_from(*product).is_ok()).ok_or(Error::Memory { nbytes: u64::MAX })
}

/// This many zeros.
///
/// # Errors
/// When they do not fit in memory.
pub(crate) fn zeros<T: Clone + Default>(count: usize) -> Result<Vec<T>> {
    let mut out = Vec::new();
    out.try_reserve_exact(count).map_err(|_| Error::Memory { nbytes: bytes::<T>(count) })?;
    out.resize(count, T::default());
    Ok(out)
}

/// The bytes of this many values.
pub(crate) fn bytes<T>(count: usize) -> u64 {
    (count as u64).saturating_mul(size_of::<T>() as u64)
}
