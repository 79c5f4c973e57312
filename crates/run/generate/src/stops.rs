//! Stop tokens, which end a text.
//!
//! Facts: `eos_token_id` of `generation_config.json` is a number or a list, and that of `config.json` counts where the
//! former is missing (`GenerationConfig.from_model_config` of Hugging Face's `transformers` 5.23).

use serde::Deserialize;

use crate::{Error, ReadModelFile, Result};

/// Ids of the stop tokens, which end a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopTokens(pub Vec<u32>);

/// Documents that may state the stop tokens, in order of precedence.
const DOCUMENTS: &[&str] = &["generation_config.json", "config.json"];

#[derive(Deserialize)]
struct EosDocument {
    #[serde(default)]
    eos_token_id: Option<EosIds>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a token id or a list of token ids")]
enum EosIds {
    One(u32),
    Several(Vec<u32>),
}

impl StopTokens {
    /// Reads the stop tokens from the documents next to a model; empty if no document states any. `read` returns a document
    /// by its name, or `None` if there is no such document.
    ///
    /// # Errors
    /// Returns the errors of `read`, and an error if a document is not JSON or `eos_token_id` is neither a number nor a list
    /// of numbers.
    pub fn from_documents<E: From<Error>>(read: &mut ReadModelFile<'_, E>) -> Result<Self, E> {
        for name in DOCUMENTS {
            let Some(bytes) = read(name)? else { continue };
            let document: EosDocument = serde_json::from_slice(&bytes)
                .map_err(|error| Error::Invalid { file: (*name).to_owned(), reason: error.to_string() })?;
            match document.eos_token_id {
                Some(EosIds::One(id)) => return Ok(Self(vec![id])),
                Some(EosIds::Several(ids)) => return Ok(Self(ids)),
                None => {}
            }
        }
        Ok(Self::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stops(documents: &[(&str, &str)]) -> Result<Vec<u32>> {
        let mut read = |name: &str| {
            let found = documents.iter().find(|(known, _)| *known == name);
            Ok(found.map(|(_, text)| text.as_bytes().to_vec()))
        };
        StopTokens::from_documents::<Error>(&mut read).map(|stops| stops.0)
    }

    #[test]
    fn a_number_or_a_list() {
        let (config, generation) = ("config.json", "generation_config.json");
        assert_eq!(stops(&[]), Ok(vec![]));
        assert_eq!(stops(&[(config, r#"{"eos_token_id": 2, "dim": [1]}"#)]), Ok(vec![2]));
        let both =
            [(config, r#"{"eos_token_id": 2}"#), (generation, r#"{"eos_token_id": [128001, 128009]}"#)];
        assert_eq!(stops(&both), Ok(vec![128_001, 128_009]));
        let null = [(config, r#"{"eos_token_id": 2}"#), (generation, r#"{"eos_token_id": null}"#)];
        assert_eq!(stops(&null), Ok(vec![2]));
        for wrong in [r#"{"eos_token_id": "x"}"#, r#"{"eos_token_id": -1}"#, "[", "\u{feff}{}"] {
            assert!(matches!(stops(&[(generation, wrong)]), Err(Error::Invalid { .. })), "{wrong}");
        }
    }
}
