//! Header entry of a tensor, with the syntax that the official reader accepts.
//!
//! Facts: `TensorInfo` and `Dtype` in `safetensors/src/tensor.rs` 0.8 and the code that serde derives for them: an entry can
//! also be an array, and a dtype an object. Fields of other names are parsed and ignored.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;

use crate::dtype::{DtypeRow, row_by_name};

pub(crate) struct HeaderEntry {
    /// Dtype, or a name that the format does not have.
    pub(crate) dtype: Result<&'static DtypeRow, String>,
    /// Shape in elements of the format's dtype.
    pub(crate) shape: SmallVec<[u64; 4]>,
    /// Start and end offsets of the data, from the end of the header.
    pub(crate) data_offsets: (u64, u64),
}

impl<'de> Deserialize<'de> for HeaderEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeaderEntryVisitor;
        impl<'de> Visitor<'de> for HeaderEntryVisitor {
            type Value = HeaderEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with dtype, shape and data_offsets")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HeaderEntry, A::Error> {
                let (mut dtype, mut shape, mut data_offsets) = (None, None, None);
                while let Some(field) = map.next_key::<Field>()? {
                    match field {
                        Field::Dtype => read_field_once(&mut dtype, "dtype", &mut map)?,
                        Field::Shape => read_field_once(&mut shape, "shape", &mut map)?,
                        Field::DataOffsets => read_field_once(&mut data_offsets, "data_offsets", &mut map)?,
                        Field::Other => {
                            map.next_value::<ParsedAndIgnored>()?;
                        }
                    }
                }
                let missing = A::Error::missing_field;
                let DtypeName(dtype) = dtype.ok_or_else(|| missing("dtype"))?;
                let shape = shape.ok_or_else(|| missing("shape"))?;
                Ok(HeaderEntry {
                    dtype,
                    shape,
                    data_offsets: data_offsets.ok_or_else(|| missing("data_offsets"))?,
                })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut fields: A) -> Result<HeaderEntry, A::Error> {
                let missing = |count| A::Error::invalid_length(count, &"three fields");
                let DtypeName(dtype) = fields.next_element()?.ok_or_else(|| missing(0))?;
                let shape = fields.next_element()?.ok_or_else(|| missing(1))?;
                Ok(HeaderEntry {
                    dtype,
                    shape,
                    data_offsets: fields.next_element()?.ok_or_else(|| missing(2))?,
                })
            }
        }
        deserializer.deserialize_any(HeaderEntryVisitor)
    }
}

enum Field {
    Dtype,
    Shape,
    DataOffsets,
    Other,
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldVisitor;
        impl Visitor<'_> for FieldVisitor {
            type Value = Field;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a field")
            }

            fn visit_str<E>(self, name: &str) -> Result<Field, E> {
                Ok(match name {
                    "dtype" => Field::Dtype,
                    "shape" => Field::Shape,
                    "data_offsets" => Field::DataOffsets,
                    _ => Field::Other,
                })
            }
        }
        deserializer.deserialize_str(FieldVisitor)
    }
}

/// Reads a field, and fails if it appears twice.
fn read_field_once<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    field: &mut Option<T>,
    name: &'static str,
    map: &mut A,
) -> Result<(), A::Error> {
    if field.is_some() {
        return Err(A::Error::duplicate_field(name));
    }
    *field = Some(map.next_value()?);
    Ok(())
}

/// Name of a dtype: a text, or an object with the name as its key and a null value.
struct DtypeName(Result<&'static DtypeRow, String>);

impl From<&str> for DtypeName {
    fn from(name: &str) -> Self {
        Self(row_by_name(name).ok_or_else(|| name.to_owned()))
    }
}

impl<'de> Deserialize<'de> for DtypeName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DtypeNameVisitor;
        impl<'de> Visitor<'de> for DtypeNameVisitor {
            type Value = DtypeName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a dtype")
            }

            fn visit_str<E>(self, name: &str) -> Result<DtypeName, E> {
                Ok(name.into())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<DtypeName, A::Error> {
                let entry = map.next_entry::<String, ()>()?;
                let ((name, ()), None) =
                    (entry.ok_or_else(|| no_name(0))?, map.next_key::<ParsedAndIgnored>()?)
                else {
                    return Err(no_name(2));
                };
                Ok(name.as_str().into())
            }
        }
        fn no_name<E: Error>(count: usize) -> E {
            E::invalid_length(count, &DtypeNameVisitor)
        }
        deserializer.deserialize_any(DtypeNameVisitor)
    }
}

/// A JSON value that is parsed, so that its numbers, texts and depth are checked, but not kept. `IgnoredAny` of serde checks
/// less.
struct ParsedAndIgnored;

impl<'de> Deserialize<'de> for ParsedAndIgnored {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

/// Recurses at most 128 levels deep, the limit of the JSON reader.
impl<'de> Visitor<'de> for ParsedAndIgnored {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Self, A::Error> {
        while values.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut values: A) -> Result<Self, A::Error> {
        while values.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}
