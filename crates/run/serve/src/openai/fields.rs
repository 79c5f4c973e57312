//! Reads the members of a request, so that an error names the member that is wrong.
//!
//! The types are our own and not those of `async-openai`, which ignore members that they do not know, and whose errors do not say
//! where they are.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use crate::reject::Reject;

/// Largest number of characters of a member's name in an error.
const NAME_SHOWN: usize = 64;

/// Struct that a JSON object fills, member by member.
pub(super) trait Fields: Default {
    /// Reads the value of a member; false if there is no such member.
    ///
    /// # Errors
    /// Returns an error if the value is not of the member's type.
    fn set<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error>;
}

/// Declares a struct of optional members, where `null` counts as absent. Members that it does not have are those of `common`.
macro_rules! fields {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $type:ty,)* } $(common: $common:ident)?) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        pub(super) struct $name {
            $(pub(super) $field: Option<$type>,)*
            $(pub(super) common: $common,)?
        }

        impl $crate::openai::fields::Fields for $name {
            fn set<'de, A: serde::de::MapAccess<'de>>(
                &mut self,
                name: &str,
                map: &mut A,
            ) -> Result<bool, A::Error> {
                match name {
                    $(stringify!($field) => self.$field = map.next_value()?,)*
                    _ => return $crate::openai::fields::fields!(@other self name map $($common)?),
                }
                Ok(true)
            }
        }
    };
    (@other $this:ident $name:ident $map:ident $common:ident) => {
        $crate::openai::fields::Fields::set(&mut $this.common, $name, $map)
    };
    (@other $this:ident $name:ident $map:ident) => {
        Ok(false)
    };
}
pub(super) use fields;

/// Parses the body of a request.
///
/// # Errors
/// Returns an error that names the member that is wrong, or that is not supported.
pub(super) fn parse<F: Fields>(body: &[u8]) -> Result<F, Reject> {
    let (mut fields, mut param) = (F::default(), None);
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let parsed = ObjectSeed { fields: &mut fields, param: &mut param }.deserialize(&mut deserializer);
    let parsed = parsed.and_then(|()| deserializer.end());
    match (parsed, param) {
        (Ok(()), _) => Ok(fields),
        (Err(error), Some(param)) => {
            Err(Reject::param(&param, format!("`{param}`: {}", member_text(&error))))
        }
        (Err(error), None) => Err(Reject::bad_request(format!("the body: {error}"))),
    }
}

/// Returns the text of an error in a member that is named: its place in the body says more only if the JSON itself is wrong.
fn member_text(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(text) if error.is_data() => text.to_owned(),
        _ => text,
    }
}

/// Fills a struct with the members of an object.
pub(super) struct ObjectSeed<'f, F> {
    pub(super) fields: &'f mut F,
    /// Member that is read.
    pub(super) param: &'f mut Option<String>,
}

impl<'de, F: Fields> DeserializeSeed<'de> for ObjectSeed<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F: Fields> Visitor<'de> for ObjectSeed<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            let shown = name.chars().take(NAME_SHOWN).flat_map(char::escape_debug).collect();
            *self.param = Some(shown);
            if !self.fields.set(&name, &mut map)? && map.next_value::<Option<IgnoredAny>>()?.is_some() {
                return Err(A::Error::custom("this server does not support it"));
            }
            *self.param = None;
        }
        Ok(())
    }
}

/// One text, or a list of texts.
#[derive(Debug)]
pub(super) struct Texts(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextsVisitor;
        impl<'de> Visitor<'de> for TextsVisitor {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }

            fn visit_str<E>(self, text: &str) -> Result<Texts, E> {
                Ok(Texts(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Texts, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = list.next_element()? {
                    texts.push(text);
                }
                Ok(Texts(texts))
            }
        }
        deserializer.deserialize_any(TextsVisitor)
    }
}
