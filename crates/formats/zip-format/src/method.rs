//! Compression methods of zip entries, by their numbers.

/// Compression method of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressionMethod {
    /// Not compressed: the bytes in the file are the data.
    Stored,
    /// Deflate, method 8.
    Deflated,
    /// One Zstandard frame, method 93.
    Zstd,
    /// Another method, identified by its number.
    Other(u16),
}

impl From<u16> for CompressionMethod {
    fn from(number: u16) -> Self {
        match number {
            0 => Self::Stored,
            8 => Self::Deflated,
            93 => Self::Zstd,
            other => Self::Other(other),
        }
    }
}

impl From<CompressionMethod> for u16 {
    fn from(method: CompressionMethod) -> Self {
        match method {
            CompressionMethod::Stored => 0,
            CompressionMethod::Deflated => 8,
            CompressionMethod::Zstd => 93,
            CompressionMethod::Other(number) => number,
        }
    }
}
