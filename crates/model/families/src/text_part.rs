//! The text model of a model of several parts, as a model of its own.

use std::cell::RefCell;

use serde_json::Value;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::families;
use crate::heads::Head;
use crate::model::{Model, parse};
use crate::multimodal::{TextPlace, text_place};

/// Keys of the whole model that its parts need, too.
const SHARED_KEYS: &[&str] = &["dtype", "torch_dtype", "transformers_version", "quantization_config"];
const TOKEN_KEYS: &[&str] = &["bos_token_id", "eos_token_id", "pad_token_id"];

/// The text model of a model of several parts.
///
/// ```
/// let whole = r#"{"model_type": "mistral3", "text_config": {"model_type": "mistral"}, "vision_config": {}}"#;
/// let part = families::TextPart::from_config(whole)?;
/// assert_eq!(part.name("model.language_model.norm.weight").as_deref(), Some("model.norm.weight"));
/// assert_eq!(part.name("model.vision_tower.ln_pre.weight"), None);
/// assert!(part.config.contains("MistralForCausalLM"));
/// # Ok::<(), families::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TextPart {
    /// The model of several parts.
    pub whole: Model,
    /// Text of the `config.json` of the text model.
    pub config: String,
    /// Starts of names in memory, and what they become.
    starts: Vec<(String, String)>,
}

impl TextPart {
    /// Reads the text of the `config.json` of a model of several parts.
    ///
    /// # Errors
    /// Those of [`Model::from_config`]; and when the model has no text part, or that has no class of its own.
    pub fn from_config(text: &str) -> Result<Self> {
        let whole = Model::from_config(text)?;
        let map = parse(text)?;
        let absent = RefCell::new(None);
        let none = || Error::NoTextPart { model_type: whole.model_type.clone() };
        let root = Config::new(&whole.model_type, &map, &absent).ok_or_else(none)?;
        let part = root.part("text_config").ok_or_else(none)?;
        let head = Head::of(&whole.class, &whole.model_type).unwrap_or(Head::Language);
        let place = text_place(&root, &part, head).ok_or_else(none)?;
        let class = part.causal_class().ok_or_else(none)?;
        let family = families::find(&part.model_type).ok_or_else(none)?;
        let mut config = part.map().clone();
        config.remove("_name_or_path");
        for key in SHARED_KEYS.iter().chain(TOKEN_KEYS) {
            if let Some(value) = map.get(*key).filter(|_| !config.contains_key(*key)) {
                config.insert((*key).to_owned(), value.clone());
            }
        }
        let TextPlace { body, head, is_tied } = place;
        config.insert("model_type".to_owned(), part.model_type.as_str().into());
        config.insert("architectures".to_owned(), vec![Value::from(class)].into());
        // The head of the whole model is tied by its own configuration, whatever that of the part says.
        config.insert("tie_word_embeddings".to_owned(), is_tied.into());
        config.sort_keys();
        let starts = vec![
            (body, format!("{}.", family.prefix)),
            (format!("{head}."), format!("{}.", family.head)),
            ("mtp.".to_owned(), "mtp.".to_owned()),
        ];
        Ok(Self { whole, config: format!("{:#}\n", Value::Object(config)), starts })
    }

    /// Returns the name in memory of a tensor of the text model, by its name in the whole one; `None` for another part.
    pub fn name(&self, name: &str) -> Option<String> {
        self.starts.iter().find_map(|(from, to)| Some(format!("{to}{}", name.strip_prefix(from.as_str())?)))
    }
}
