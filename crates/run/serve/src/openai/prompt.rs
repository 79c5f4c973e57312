//! Prompts of completions: a text, tokens, or a list of either.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};

/// Most prompts of a request.
const PROMPTS_MAX: usize = 2048;

/// Prompts as a request gives them.
#[derive(Debug, PartialEq)]
pub(super) enum Prompts {
    Texts(Vec<String>),
    Tokens(Vec<Vec<u32>>),
}

/// Element of a list of prompts.
enum Element {
    Text(String),
    Token(u32),
    Tokens(Vec<u32>),
}

const EXPECTED: &str = "a text, a list of texts, a list of token ids, or a list of lists of token ids";

impl<'de> Deserialize<'de> for Prompts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PromptsVisitor)
    }
}

struct PromptsVisitor;

impl<'de> Visitor<'de> for PromptsVisitor {
    type Value = Prompts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_str<E>(self, text: &str) -> Result<Prompts, E> {
        Ok(Prompts::Texts(vec![text.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Prompts, A::Error> {
        let mixed = || A::Error::custom(format!("expected {EXPECTED}, not several kinds"));
        let (mut texts, mut lists, mut single) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(element) = list.next_element()? {
            match element {
                Element::Text(text) if lists.is_empty() && single.is_empty() => texts.push(text),
                Element::Tokens(tokens) if texts.is_empty() && single.is_empty() => lists.push(tokens),
                Element::Token(token) if texts.is_empty() && lists.is_empty() => single.push(token),
                _ => return Err(mixed()),
            }
            if texts.len().max(lists.len()) > PROMPTS_MAX {
                return Err(A::Error::custom(format!("at most {PROMPTS_MAX} prompts are allowed")));
            }
        }
        if !single.is_empty() {
            return Ok(Prompts::Tokens(vec![single]));
        }
        if !lists.is_empty() {
            return Ok(Prompts::Tokens(lists));
        }
        if texts.is_empty() {
            return Err(A::Error::custom("the list is empty"));
        }
        Ok(Prompts::Texts(texts))
    }
}

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ElementVisitor;
        impl<'de> Visitor<'de> for ElementVisitor {
            type Value = Element;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a token id or a list of token ids")
            }

            fn visit_str<E>(self, text: &str) -> Result<Element, E> {
                Ok(Element::Text(text.to_owned()))
            }

            fn visit_u64<E: serde::de::Error>(self, id: u64) -> Result<Element, E> {
                u32::try_from(id)
                    .map(Element::Token)
                    .map_err(|_| E::custom(format!("{id} is not a token id")))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Element, A::Error> {
                let mut tokens = Vec::new();
                while let Some(token) = list.next_element()? {
                    tokens.push(token);
                }
                Ok(Element::Tokens(tokens))
            }
        }
        deserializer.deserialize_any(ElementVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_of_prompts() {
        let parsed = |text: &str| serde_json::from_str::<Prompts>(text).map_err(|error| error.to_string());
        assert_eq!(parsed(r#""a""#), Ok(Prompts::Texts(vec!["a".to_owned()])));
        assert_eq!(parsed(r#"["a","b"]"#), Ok(Prompts::Texts(vec!["a".to_owned(), "b".to_owned()])));
        assert_eq!(parsed("[1,2]"), Ok(Prompts::Tokens(vec![vec![1, 2]])));
        assert_eq!(parsed("[[1],[2,3]]"), Ok(Prompts::Tokens(vec![vec![1], vec![2, 3]])));
        for wrong in [
            "[]",
            "1",
            "true",
            "{}",
            r#"["a",1]"#,
            "[1,[2]]",
            "[[1],\"a\"]",
            "[-1]",
            "[1.5]",
            "[4294967296]",
            "[true]",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
