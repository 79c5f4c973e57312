//! Whether bytes are a zip archive, for one reader or another.
//!
//! Facts: PyTorch recognises an archive by its first bytes, Python's `zipfile` and most others by what is near its end.

use zip_index::Survey;

/// Whether some reader takes bytes for a zip archive: by their start, as PyTorch does, or by what is near their end.
pub(super) fn is_archive(bytes: &[u8]) -> bool {
    starts_as_archive(bytes) || ends_as_archive(bytes) || Survey::has_directory(bytes)
}

/// Whether bytes start with the header of an entry, or with the end of an archive that has none.
pub(super) fn starts_as_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06")
}

/// Whether the last bytes of a file have the signature of the end of a zip archive.
pub(super) fn may_end_as_archive(tail: &[u8]) -> bool {
    tail.windows(4).any(|found| found == b"PK\x05\x06")
}

/// Whether bytes end like a zip archive.
pub(super) fn ends_as_archive(bytes: &[u8]) -> bool {
    Survey::ends_as_zip(bytes)
}
