//! Values of the metadata, as a file encodes them.
//!
//! An array keeps the bytes of the header, and decodes an element when it is asked for: a vocabulary is not copied.

use bytes::Bytes;
use tensor::ByteOrder;

use crate::cursor::Cursor;

macro_rules! value_types {
    ($($id:literal $variant:ident($type:ty) $name:literal $size:literal,)+) => {
        /// Type of a value. A text and an array have no fixed length.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ValueType {
            $($variant = $id,)+
        }

        /// Value of a key.
        #[derive(Clone, Debug, PartialEq)]
        pub enum GgufValue {
            $($variant($type),)+
        }

        impl ValueType {
            const ALL: &[(Self, &str, u64)] = &[$((Self::$variant, $name, $size),)+];
        }

        impl GgufValue {
            /// Returns the type of the value.
            pub fn value_type(&self) -> ValueType {
                match self {
                    $(Self::$variant(_) => ValueType::$variant,)+
                }
            }
        }
    };
}

value_types! {
    0 UInt8(u8) "uint8" 1,
    1 Int8(i8) "int8" 1,
    2 UInt16(u16) "uint16" 2,
    3 Int16(i16) "int16" 2,
    4 UInt32(u32) "uint32" 4,
    5 Int32(i32) "int32" 4,
    6 Float32(f32) "float32" 4,
    7 Bool(bool) "bool" 1,
    8 Text(Bytes) "text" 0,
    9 Array(GgufArray) "array" 0,
    10 UInt64(u64) "uint64" 8,
    11 Int64(i64) "int64" 8,
    12 Float64(f64) "float64" 8,
}

impl ValueType {
    pub(crate) fn from_id(id: u32) -> Option<Self> {
        Self::ALL.iter().find(|(kind, ..)| *kind as u32 == id).map(|(kind, ..)| *kind)
    }

    fn row(self) -> Option<&'static (Self, &'static str, u64)> {
        Self::ALL.iter().find(|(kind, ..)| *kind == self)
    }

    /// Returns the name of the type.
    pub fn name(self) -> &'static str {
        self.row().map_or("", |(_, name, _)| name)
    }

    /// Returns the length of a number or truth value in bytes; `None` for a text or an array.
    pub(crate) fn size(self) -> Option<u64> {
        self.row().map(|(.., size)| *size).filter(|size| *size > 0)
    }
}

/// Array of values of one type.
#[derive(Clone, Debug)]
pub struct GgufArray {
    pub(crate) element: ValueType,
    pub(crate) len: u64,
    /// Encoded elements, whose form was checked.
    pub(crate) bytes: Bytes,
    pub(crate) order: ByteOrder,
}

impl GgufArray {
    /// Creates an array of texts.
    pub fn from_texts<T: AsRef<[u8]>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::encode(ValueType::Text, texts, |text, bytes| put_text(text.as_ref(), bytes))
    }

    /// Creates an array of 32-bit integers.
    pub fn from_int32(numbers: impl IntoIterator<Item = i32>) -> Self {
        Self::encode(ValueType::Int32, numbers, |number, bytes| bytes.extend(number.to_le_bytes()))
    }

    /// Creates an array of 32-bit floats.
    pub fn from_float32(numbers: impl IntoIterator<Item = f32>) -> Self {
        Self::encode(ValueType::Float32, numbers, |number, bytes| bytes.extend(number.to_le_bytes()))
    }

    /// Creates an array of truth values.
    pub fn from_flags(flags: impl IntoIterator<Item = bool>) -> Self {
        Self::encode(ValueType::Bool, flags, |flag, bytes| bytes.push(u8::from(flag)))
    }

    fn encode<T>(
        element: ValueType,
        values: impl IntoIterator<Item = T>,
        put: impl Fn(T, &mut Vec<u8>),
    ) -> Self {
        let (mut bytes, mut len) = (Vec::new(), 0_u64);
        for value in values {
            put(value, &mut bytes);
            len = len.saturating_add(1);
        }
        Self { element, len, bytes: bytes.into(), order: ByteOrder::Little }
    }

    /// Returns the type of the elements.
    pub fn element(&self) -> ValueType {
        self.element
    }

    /// Returns the number of elements.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Iterates over the elements, and decodes each.
    pub fn iter(&self) -> impl Iterator<Item = GgufValue> {
        let mut cursor = Cursor::new(&self.bytes, 0, self.order, self.bytes.len() as u64);
        (0..self.len).map_while(move |_| cursor.value(self.element, 0).ok())
    }
}

/// Arrays are equal if their elements are, whatever their byte orders.
impl PartialEq for GgufArray {
    fn eq(&self, other: &Self) -> bool {
        self.element == other.element && self.len == other.len && self.iter().eq(other.iter())
    }
}

impl GgufValue {
    /// Returns a text, with a replacement for what is not UTF-8; `None` for other values.
    pub fn text(&self) -> Option<std::borrow::Cow<'_, str>> {
        match self {
            Self::Text(text) => Some(String::from_utf8_lossy(text)),
            _ => None,
        }
    }

    /// Appends the value as a little-endian file has it, without its type.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::UInt8(number) => bytes.push(*number),
            Self::Int8(number) => bytes.extend(number.to_le_bytes()),
            Self::UInt16(number) => bytes.extend(number.to_le_bytes()),
            Self::Int16(number) => bytes.extend(number.to_le_bytes()),
            Self::UInt32(number) => bytes.extend(number.to_le_bytes()),
            Self::Int32(number) => bytes.extend(number.to_le_bytes()),
            Self::Float32(number) => bytes.extend(number.to_le_bytes()),
            Self::Bool(is_set) => bytes.push(u8::from(*is_set)),
            Self::Text(text) => put_text(text, bytes),
            Self::Array(array) => {
                bytes.extend((array.element as u32).to_le_bytes());
                bytes.extend(array.len.to_le_bytes());
                match array.order {
                    ByteOrder::Little => bytes.extend(&array.bytes),
                    // Recurses as deep as arrays are nested, which the reader limits.
                    ByteOrder::Big => array.iter().for_each(|element| element.encode(bytes)),
                }
            }
            Self::UInt64(number) => bytes.extend(number.to_le_bytes()),
            Self::Int64(number) => bytes.extend(number.to_le_bytes()),
            Self::Float64(number) => bytes.extend(number.to_le_bytes()),
        }
    }
}

pub(crate) fn put_text(text: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text);
}
