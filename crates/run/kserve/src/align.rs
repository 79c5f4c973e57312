//! Alignment of tensor data in memory.

use bytes::Bytes;

/// Returns the bytes at an address that is a multiple of `align`: shared if already aligned, otherwise a copy.
///
/// The data of a received binary tensor is a slice of the body at any offset, so its address can have any alignment. Code
/// that casts the data to numbers in place, for example with `bytemuck::cast_slice`, needs an address that is a multiple of
/// the [size of the datatype](crate::Datatype::size). Code that decodes each number with `from_le_bytes` does not.
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
