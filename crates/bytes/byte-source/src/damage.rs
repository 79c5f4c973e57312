//! Problems of bytes and numbers that are read.

use crate::Place;
use crate::error::detail;

/// The bytes of a record do not match the CRC-32 in the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "record `{}` is damaged: its CRC-32 is {found:08x}, the archive records {expected:08x}",
    record.escape_debug()
)]
pub struct RecordDamaged {
    /// Name of the record in the file.
    pub record: String,
    /// CRC-32 according to the file.
    pub expected: u32,
    /// CRC-32 of the bytes.
    pub found: u32,
}

detail!(RecordDamaged is Damaged, |damaged| Place {
    record: Some(damaged.record.clone()),
    ..Place::default()
});

/// The requested dtype cannot represent a number, such as a float outside the range of an integer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tensor `{}`: {number} ({from}) is not in the range of {to}", tensor.escape_debug())]
pub struct NotRepresentable {
    /// Name of a tensor that contains the number.
    pub tensor: String,
    /// Name of the tensor's dtype.
    pub from: &'static str,
    /// Name of the requested dtype.
    pub to: &'static str,
    pub number: String,
}

detail!(NotRepresentable is Option, |number| Place::tensor(&number.tensor));
