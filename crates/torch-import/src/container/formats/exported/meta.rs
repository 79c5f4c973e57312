//! Descriptions of tensors in the documents of an exported program.
//!
//! Facts: `TensorMeta`, `PayloadMeta` and `ScalarType` in `torch/_export/serde/schema.py`, whose numbers are not those of c10.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, de};
use tensor::Dtype;

/// Number of the layout of strided tensors.
pub(super) const STRIDED: u64 = 7;

/// Dtypes and their numbers.
const DTYPES: &[(u64, Dtype)] = &[
    (1, Dtype::UInt8),
    (2, Dtype::Int8),
    (3, Dtype::Int16),
    (4, Dtype::Int32),
    (5, Dtype::Int64),
    (6, Dtype::Float16),
    (7, Dtype::Float32),
    (8, Dtype::Float64),
    (9, Dtype::Complex32),
    (10, Dtype::Complex64),
    (11, Dtype::Complex128),
    (12, Dtype::Bool),
    (13, Dtype::BFloat16),
    (28, Dtype::UInt16),
    (29, Dtype::Float8E4M3Fn),
    (30, Dtype::Float8E5M2),
    (31, Dtype::Float8E4M3FnUz),
    (32, Dtype::Float8E5M2FnUz),
    (33, Dtype::Float8E8M0FnU),
    (34, Dtype::UInt32),
    (35, Dtype::UInt64),
];

/// Returns the dtype with a number.
pub(super) fn dtype_of(number: u64) -> Option<Dtype> {
    DTYPES.iter().find(|(known, _)| *known == number).map(|(_, dtype)| *dtype)
}

/// Document that says where the tensors of a model are.
#[derive(Deserialize)]
pub(super) struct PayloadConfig {
    pub(super) config: Ordered<Payload>,
}

/// Record of a tensor or an object, and what it holds.
#[derive(Deserialize)]
pub(super) struct Payload {
    pub(super) path_name: String,
    #[serde(default)]
    pub(super) use_pickle: bool,
    pub(super) tensor_meta: Option<TensorMeta>,
}

#[derive(Deserialize)]
pub(super) struct TensorMeta {
    pub(super) dtype: u64,
    pub(super) sizes: Vec<SymbolicSize>,
    pub(super) strides: Vec<SymbolicSize>,
    pub(super) storage_offset: SymbolicSize,
    pub(super) layout: u64,
}

/// Number, or an expression that is known only when the program runs.
#[derive(Deserialize)]
pub(super) enum SymbolicSize {
    #[serde(rename = "as_int")]
    Int(i64),
    #[serde(rename = "as_expr")]
    Expression { expr_str: String },
}

impl fmt::Display for SymbolicSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Int(number) => return number.fmt(f),
            Self::Expression { expr_str } => expr_str,
        };
        // `2*Symbol('s0', positive=True)` is `2*s0`.
        let mut parts = text.split("Symbol('");
        f.write_str(parts.next().unwrap_or_default())?;
        for part in parts {
            let (name, rest) = part.split_once('\'').unwrap_or((part, ""));
            let (_, rest) = rest.split_once(')').unwrap_or_default();
            write!(f, "{name}{rest}")?;
        }
        Ok(())
    }
}

/// Entries of an object in the order of the document.
pub(super) struct Ordered<T>(pub(super) Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ordered<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Ordered<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered<T>, A::Error> {
                let mut entries: Vec<(String, T)> = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Ordered(entries))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

/// Returns the sizes as numbers.
///
/// # Errors
/// When one is an expression or negative: a text that says so, and true if the document is damaged.
pub(super) fn numbers(what: &str, sizes: &[SymbolicSize]) -> Result<Vec<u64>, (String, bool)> {
    let number = |size: &SymbolicSize| match size {
        SymbolicSize::Int(number) => {
            u64::try_from(*number).map_err(|_| (format!("its {what} has the number {number}"), true))
        }
        SymbolicSize::Expression { .. } => {
            let text = size.to_string();
            let text = text.escape_debug();
            Err((
                format!("its {what} has the symbol `{text}`, which is a number only when the program runs"),
                false,
            ))
        }
    };
    sizes.iter().map(number).collect()
}

/// Parses a document.
///
/// # Errors
/// When it is no such document, with its name.
pub(super) fn parse<T: de::DeserializeOwned>(record: &str, text: &[u8]) -> crate::Result<T> {
    serde_json::from_slice(text).map_err(|reason| {
        crate::Problem::Document { file: record.to_owned(), reason: reason.to_string() }.into()
    })
}
