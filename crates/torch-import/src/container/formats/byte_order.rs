//! The record `byteorder` of an archive.

use tensor::ByteOrder;

use crate::{Problem, Result};

pub(super) fn parse_byte_order(bytes: &[u8]) -> Result<ByteOrder> {
    match bytes {
        b"little" => Ok(ByteOrder::Little),
        b"big" => Ok(ByteOrder::Big),
        other => {
            let start = other.get(..other.len().min(16)).unwrap_or_default();
            Err(Problem::ByteOrder { found: String::from_utf8_lossy(start).into_owned() }.into())
        }
    }
}
