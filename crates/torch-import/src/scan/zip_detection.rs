//! Recognises zip archives as different readers do.
//!
//! Facts: PyTorch recognises an archive by its first bytes, Python's `zipfile` and most other readers by the end
//! record.

use zip_format::Survey;

/// Returns true if some reader takes the bytes for a zip archive, by their start, as PyTorch does, or by the records
/// near their end.
pub(super) fn is_archive(bytes: &[u8]) -> bool {
    starts_as_archive(bytes) || ends_as_archive(bytes) || Survey::has_directory(bytes)
}

/// Returns true if the bytes start with a local header, or with the end record of an archive without entries.
pub(super) fn starts_as_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06")
}

/// Returns true if the last bytes of a file contain the signature of a zip end record.
pub(super) fn may_end_as_archive(tail: &[u8]) -> bool {
    tail.windows(4).any(|found| found == b"PK\x05\x06")
}

/// Returns true if the bytes end like a zip archive.
pub(super) fn ends_as_archive(bytes: &[u8]) -> bool {
    Survey::ends_as_zip(bytes)
}
