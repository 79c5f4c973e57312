//! Datatypes of the protocol, as a table with one row each.
//!
//! Facts: "Tensor Data Types" in the protocol's `required_api.md`, `DataType` in Triton's `model_config.proto`.

use std::fmt;

/// Element datatype of a tensor in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Datatype {
    Bool,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Int8,
    Int16,
    Int32,
    Int64,
    Fp16,
    Fp32,
    Fp64,
    Bf16,
    /// Byte strings of any length, usually text.
    Bytes,
}

/// Table row: datatype, name in requests, name in a model configuration, and size of an element in bytes.
type DatatypeRow = (Datatype, &'static str, &'static str, Option<usize>);

const DATATYPE_ROWS: [DatatypeRow; 14] = [
    (Datatype::Bool, "BOOL", "TYPE_BOOL", Some(1)),
    (Datatype::Uint8, "UINT8", "TYPE_UINT8", Some(1)),
    (Datatype::Uint16, "UINT16", "TYPE_UINT16", Some(2)),
    (Datatype::Uint32, "UINT32", "TYPE_UINT32", Some(4)),
    (Datatype::Uint64, "UINT64", "TYPE_UINT64", Some(8)),
    (Datatype::Int8, "INT8", "TYPE_INT8", Some(1)),
    (Datatype::Int16, "INT16", "TYPE_INT16", Some(2)),
    (Datatype::Int32, "INT32", "TYPE_INT32", Some(4)),
    (Datatype::Int64, "INT64", "TYPE_INT64", Some(8)),
    (Datatype::Fp16, "FP16", "TYPE_FP16", Some(2)),
    (Datatype::Fp32, "FP32", "TYPE_FP32", Some(4)),
    (Datatype::Fp64, "FP64", "TYPE_FP64", Some(8)),
    (Datatype::Bf16, "BF16", "TYPE_BF16", Some(2)),
    (Datatype::Bytes, "BYTES", "TYPE_STRING", None),
];

impl Datatype {
    /// Iterates over all datatypes.
    pub fn all() -> impl Iterator<Item = Self> {
        DATATYPE_ROWS.iter().map(|row| row.0)
    }

    /// Returns the datatype with this name in requests and metadata, such as `FP32`.
    pub fn from_name(name: &str) -> Option<Self> {
        DATATYPE_ROWS.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Returns the name in requests and metadata, such as `FP32`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Returns the name in a model configuration, such as `TYPE_FP32`.
    pub fn config_name(self) -> &'static str {
        self.row().2
    }

    /// Returns the size of an element in bytes, or `None` for [`Bytes`](Self::Bytes), whose elements vary in length.
    pub fn size(self) -> Option<usize> {
        self.row().3
    }

    /// Returns true if elements have a JSON form. The protocol defines none for FP16 and BF16.
    pub fn has_json(self) -> bool {
        !matches!(self, Self::Fp16 | Self::Bf16)
    }

    /// Describes the valid JSON values of an element, for error messages.
    pub(crate) fn json_values(self) -> &'static str {
        match self {
            Self::Bool => "true or false",
            Self::Uint8 => "a whole number from 0 to 255",
            Self::Uint16 => "a whole number from 0 to 65535",
            Self::Uint32 => "a whole number from 0 to 4294967295",
            Self::Uint64 => "a whole number from 0 to 18446744073709551615",
            Self::Int8 => "a whole number from -128 to 127",
            Self::Int16 => "a whole number from -32768 to 32767",
            Self::Int32 => "a whole number from -2147483648 to 2147483647",
            Self::Int64 => "a whole number from -9223372036854775808 to 9223372036854775807",
            Self::Fp16 | Self::Bf16 => "sent as bytes",
            Self::Fp32 => "a number from -3.4028235e38 to 3.4028235e38, NaN, Infinity or -Infinity",
            Self::Fp64 => {
                "a number from -1.7976931348623157e308 to 1.7976931348623157e308, NaN, Infinity or -Infinity"
            }
            Self::Bytes => "a string",
        }
    }

    fn row(self) -> &'static DatatypeRow {
        DATATYPE_ROWS.iter().find(|row| row.0 == self).expect("each datatype has a row")
    }
}

impl fmt::Display for Datatype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl serde::Serialize for Datatype {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
