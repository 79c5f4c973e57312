//! Bytes at an address that suits their numbers.

use bytes::Bytes;

/// The same bytes at an address that is a multiple of `align`: a slice of the same memory if it is one, otherwise a copy.
///
/// The bytes of a tensor that was received as bytes are a slice of the body, which starts anywhere. Code that reads them as
/// numbers in place, for example with `bytemuck::cast_slice`, needs an address that is a multiple of the
/// [size of the datatype](crate::Datatype::size). Code that takes the bytes of each number (`from_le_bytes`) does not.
pub fn aligned(bytes: &Bytes, align: usize) -> Bytes {
    let misplaced = |bytes: &[u8]| bytes.as_ptr().addr().checked_rem(align).unwrap_or(0);
    if misplaced(bytes) == 0 {
        return bytes.clone();
    }
    let mut copy = Vec::with_capacity(bytes.len().saturating_add(align));
    let gap = align.saturating_sub(misplaced(&copy));
    copy.resize(gap, 0);
    copy.extend_from_slice(bytes);
    Bytes::from(copy).slice(gap..)
}
