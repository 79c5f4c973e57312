//! Files in either byte order, whose parts a test may make wrong.

use bytes::Bytes;
use gguf_format::{Error, GgufHeader};

/// A file under construction, in one byte order.
#[derive(Clone)]
pub(crate) struct File {
    pub(crate) bytes: Vec<u8>,
    is_big: bool,
}

impl File {
    /// Starts a file of version 3 with this number of tensors and keys.
    pub(crate) fn new(is_big: bool, tensors: u64, keys: u64) -> Self {
        Self { bytes: b"GGUF".to_vec(), is_big }.u32(3).u64(tensors).u64(keys)
    }

    pub(crate) fn little(tensors: u64, keys: u64) -> Self {
        Self::new(false, tensors, keys)
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend(bytes);
        self
    }

    fn word<const SIZE: usize>(self, mut little: [u8; SIZE]) -> Self {
        if self.is_big {
            little.reverse();
        }
        self.raw(&little)
    }

    pub(crate) fn u32(self, number: u32) -> Self {
        self.word(number.to_le_bytes())
    }

    pub(crate) fn u64(self, number: u64) -> Self {
        self.word(number.to_le_bytes())
    }

    pub(crate) fn text(self, text: &str) -> Self {
        self.u64(text.len() as u64).raw(text.as_bytes())
    }

    /// Adds a key with the type of its value, which follows.
    pub(crate) fn key(self, key: &str, kind: u32) -> Self {
        self.text(key).u32(kind)
    }

    /// Adds the entry of a tensor; dimensions in the order of the file.
    pub(crate) fn tensor(self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Self {
        let file = self.text(name).u32(u32::try_from(dims.len()).expect("few"));
        dims.iter().fold(file, |file, size| file.u64(*size)).u32(kind).u64(offset)
    }

    /// Aligns the end of the header, and adds data.
    pub(crate) fn data(mut self, len: usize) -> Self {
        let start = self.bytes.len().next_multiple_of(32);
        self.bytes.resize(start + len, 0);
        self
    }

    pub(crate) fn with_version(mut self, version: u32) -> Self {
        self.bytes[4..8].copy_from_slice(&version.to_le_bytes());
        self
    }

    pub(crate) fn with_magic(mut self, magic: [u8; 4]) -> Self {
        self.bytes[..4].copy_from_slice(&magic);
        self
    }

    pub(crate) fn parse(&self) -> Result<GgufHeader, Error> {
        GgufHeader::parse(&Bytes::copy_from_slice(&self.bytes), self.bytes.len() as u64)
    }

    pub(crate) fn error(&self) -> String {
        self.parse().expect_err("it is wrong").to_string()
    }
}
