//! Finds what NumPy unpickles in a `.npy` file.
//!
//! Facts: `numpy/lib/format.py` of NumPy 2.4.

/// Magic bytes of a `.npy` file.
pub(super) const NPY_MAGIC: &[u8] = b"\x93NUMPY";

/// Returns the data after the header of a `.npy` file, and true if the data may be a pickle of objects.
pub(super) fn numpy_data(bytes: &[u8]) -> Option<(&[u8], bool)> {
    let (version, rest) = bytes.strip_prefix(NPY_MAGIC)?.split_first()?;
    let rest = rest.get(1..)?;
    let (len, rest) = if *version == 1 {
        let (len, rest) = rest.split_first_chunk()?;
        (usize::from(u16::from_le_bytes(*len)), rest)
    } else {
        let (len, rest) = rest.split_first_chunk()?;
        (usize::try_from(u32::from_le_bytes(*len)).ok()?, rest)
    };
    let (header, data) = rest.split_at_checked(len)?;
    // `|O` is the dtype of objects, also as one of several fields. NumPy has other names for the dtype, too; data with
    // one of those are scanned like bytes of an unknown format.
    let has_objects = header.windows(2).any(|pair| pair == b"O'" || pair == b"O\"");
    Some((data, has_objects))
}
