//! Reader of the JSON of the header.
//!
//! JSON leaves open which of two equal keys counts (RFC 8259, section 4), and readers of safetensors differ. Here, a key
//! that appears twice is an error, even if both values are the same.

use std::borrow::Cow;
use std::fmt;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use foldhash::{HashSet, HashSetExt};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value as Json;

use crate::METADATA_KEY;
use crate::info::HeaderEntry;

/// Entries of the header, in the file's order.
pub(crate) struct HeaderEntries<'t> {
    pub(crate) metadata: HeaderMetadata,
    pub(crate) tensors: Vec<(Cow<'t, str>, HeaderEntry)>,
}

/// Length of most entries is more than this number of bytes.
const SHORT_ENTRY: usize = 100;

impl<'t> HeaderEntries<'t> {
    pub(crate) fn parse(text: &'t str) -> serde_json::Result<Self> {
        let count = text.len() / SHORT_ENTRY;
        // Different hashes prove that names differ, and need no copies of the names.
        let visitor = HeaderVisitor { state: RandomState::default(), hashes: HashSet::with_capacity(count) };
        let mut json = serde_json::Deserializer::from_str(text);
        let entries = json.deserialize_map(visitor)?;
        json.end()?;
        Ok(entries)
    }
}

/// A name that is copied only if it has escapes.
#[derive(serde::Deserialize)]
struct EntryName<'t>(#[serde(borrow)] Cow<'t, str>);

struct HeaderVisitor {
    state: RandomState,
    hashes: HashSet<u64>,
}

impl<'t> Visitor<'t> for HeaderVisitor {
    type Value = HeaderEntries<'t>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'t>>(mut self, mut map: A) -> std::result::Result<Self::Value, A::Error> {
        let mut has_metadata = false;
        let tensors = Vec::with_capacity(self.hashes.capacity());
        let mut header = HeaderEntries { metadata: HeaderMetadata::default(), tensors };
        while let Some(EntryName(name)) = map.next_key()? {
            let is_second = if name == METADATA_KEY {
                std::mem::replace(&mut has_metadata, true)
            } else {
                !self.hashes.insert(self.state.hash_one(&name))
                    && header.tensors.iter().any(|(known, _)| *known == name)
            };
            if is_second {
                let what = if name == METADATA_KEY { "" } else { "tensor " };
                let text = format!("{what}`{}` appears twice", name.escape_debug());
                return Err(serde::de::Error::custom(text));
            }
            if name == METADATA_KEY {
                header.metadata = map.next_value()?;
            } else {
                let info = map.next_value().map_err(|error| {
                    serde::de::Error::custom(format!("tensor `{}`: {error}", name.escape_debug()))
                })?;
                header.tensors.push((name, info));
            }
        }
        Ok(header)
    }
}

/// Entries of `__metadata__`, in the file's order; the value may be `null`.
#[derive(Default)]
pub(crate) struct HeaderMetadata {
    pub(crate) entries: Vec<(String, String)>,
    pub(crate) not_texts: Vec<(String, &'static str)>,
}

impl<'de> Deserialize<'de> for HeaderMetadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = HeaderMetadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_unit<E>(self) -> std::result::Result<HeaderMetadata, E> {
                Ok(HeaderMetadata::default())
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<HeaderMetadata, A::Error> {
                let mut seen = std::collections::HashSet::new();
                let mut metadata = HeaderMetadata::default();
                while let Some((key, value)) = map.next_entry::<String, Json>()? {
                    if !seen.insert(key.clone()) {
                        let text = format!("`{}` appears twice in `{METADATA_KEY}`", key.escape_debug());
                        return Err(serde::de::Error::custom(text));
                    }
                    let found = match &value {
                        Json::String(_) => None,
                        Json::Null => Some("null"),
                        Json::Bool(_) => Some("a boolean"),
                        Json::Number(_) => Some("a number"),
                        Json::Array(_) => Some("a list"),
                        Json::Object(_) => Some("an object"),
                    };
                    metadata.not_texts.extend(found.map(|found| (key.clone(), found)));
                    let text = if let Json::String(text) = value { text } else { value.to_string() };
                    metadata.entries.push((key, text));
                }
                Ok(metadata)
            }
        }
        deserializer.deserialize_any(Object)
    }
}
