//! The table of families: which tensors a model type of transformers has, with their shapes, in each layout of their names.
//!
//! A [`Model`] is read from a `config.json`, with the defaults of its class. It has two layouts: the names that are *released*,
//! and those that the *modules* have in memory. [`Model::compare`] finds what a folder lacks and has too much, from names and
//! shapes alone.
//!
//! ```
//! use families::Model;
//!
//! let config = r#"{"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 8, "intermediate_size": 16,
//!     "num_attention_heads": 2, "vocab_size": 10, "tie_word_embeddings": true}"#;
//! let comparison = Model::from_config(config)?.compare(&[("model.norm.weight", &[8])]);
//! assert_eq!(comparison.missing.len(), 10);
//! assert_eq!((comparison.groups[1].name.as_str(), comparison.groups[1].tensors), ("model.embed_tokens.weight", 1));
//! # Ok::<(), families::Error>(())
//! ```
//!
//! Facts: the classes, the conversions of checkpoints and the meta models of transformers 5.23.

#![expect(
    clippy::many_single_char_names,
    reason = "c is a configuration, and s, l, m, a are the places of modules"
)]

mod built;
mod compare;
mod config;
mod decoder;
mod differences;
mod error;
mod families;
mod family;
mod groups;
mod heads;
mod ignored;
mod indices;
mod model;
mod mtp;
mod multimodal;
mod names;
mod parts;
mod quantized;
mod roles;
mod rule;
mod size;
mod text_part;
mod translation;
mod tree;

pub use compare::{MisshapedTensor, MissingTensor, ModelComparison};
pub use config::ConfigClass;
pub use differences::different_keys;
pub use error::{Error, Result};
pub use families::other_names;
pub use groups::TensorGroup;
pub use model::{LayoutId, Model};
pub use names::{DecoderNames, TensorPlace};
pub use roles::{LayerPart, Role};
pub use text_part::TextPart;
pub use translation::{MadeTensor, Recipe};
