//! What kind of file this is, by its first bytes.

use crate::{Error, Result};

/// A legacy file's first pickle: PROTO 2, then LONG1 of the ten bytes of `0x1950a86a20f9469cfc6c`.
const LEGACY: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

/// Files that are recognised and not read: their first bytes, what they are, what to do.
const OTHERS: &[(&[u8], &str, &str)] = &[
    (LEGACY, "a legacy PyTorch checkpoint (before 1.6)", "legacy checkpoints are not read yet"),
    (b"\x80", "a bare pickle", "bare pickles are not read yet"),
    (
        b"version https://git-lfs",
        "a Git LFS pointer",
        "the weights are not here yet; fetch them with `git lfs pull`",
    ),
    (b"<", "an HTML or XML page", "the download gave a page instead of the file; download it again"),
    (b"{", "a JSON file", "pass the checkpoint that lies beside it"),
    (b"\x93NUMPY", "a NumPy array", ""),
    (b"GGUF", "a GGUF model", ""),
    (b"\x89HDF\r\n", "an HDF5 file", ""),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it first"),
    (b"\x1f\x8b", "a gzip file", "unpack it first"),
    (b"BZh", "a bzip2 file", "unpack it first"),
    (b"\xfd7zXZ\0", "an xz file", "unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd file", "unpack it first"),
];

/// Whether a file is a zip archive; an archive without entries starts with its end record.
pub(crate) fn is_zip(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06")
}

/// Whether a file is the chain of pickles that PyTorch wrote before 1.6.
pub(crate) fn is_legacy(bytes: &[u8]) -> bool {
    bytes.starts_with(LEGACY)
}

/// Refuses what is no zip archive.
///
/// # Errors
/// Names what the file is instead, where it can.
pub(super) fn sniff(bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Err(Error::Format { what: "an empty file", hint: "download or copy it again" });
    }
    if is_zip(bytes) {
        return Ok(());
    }
    for (start, what, hint) in OTHERS {
        if bytes.starts_with(start) {
            return Err(Error::Format { what, hint });
        }
    }
    if bytes.get(8) == Some(&b'{') {
        return Err(Error::Format { what: "a safetensors file", hint: "safetensors are not read yet" });
    }
    if bytes.get(257..262) == Some(b"ustar") {
        return Err(Error::Format { what: "a tar archive", hint: "tar checkpoints are not read yet" });
    }
    Err(Error::Format { what: "a file of an unknown kind", hint: "" })
}
