//! Describes a decoder-only language model from its documents, tensor names and shapes.
//!
//! [`detect`] and [`named`] read Meta's `params.json` or Hugging Face's `config.json`, compare them with the shapes of the
//! tensors, and return a [`Decoder`]: its sizes, rotary embeddings, sliding windows and biases. [`Decoder::assign`] maps its
//! weights to tensors. The TorchScript text and any other implementation of the forward pass can be built from a
//! [`Decoder`].
//!
//! ```
//! use tensor::{Dtype, Storage, Tensor};
//!
//! let storage = Storage::owned(vec![0; 24]);
//! let tensor = Tensor::new(Dtype::BFloat16, vec![3, 4], vec![4, 1], 0, storage)?;
//! let found = decoder::detect(&[("fc.weight".to_owned(), tensor)].into(), &decoder::Options::default())?;
//! let decoder::Detected::Weights { why, .. } = found else { panic!("one matrix is not a language model") };
//! assert_eq!(why, decoder::WhyWeights::NoArchitecture);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Facts: `model.py` and `args.py` in Meta's `llama-models` 0.3.0, the configuration and modeling files of
//! Hugging Face's `transformers` 5.23; each file names those it follows.

mod architecture;
mod architectures;
mod assign;
mod block;
mod validate;
mod detect;
mod config_defaults;
mod documents;
mod error;
mod hyperparameters;
mod frequencies;
mod overrides;
pub mod interface;
mod layout;
mod translate;
mod note;
mod decoder_spec;
mod legacy_attributes;
mod rope;
mod sizes;
mod weight;
mod no_model_reason;

pub use architecture::Architecture;
pub use assign::{Assigned, Assignment};
pub use block::{Activation, Block, Experts, HeadNorm, NormKind, NormPlace, Scales, Scores, SharedExpert, Softmax};
pub use detect::{Detected, ModelDocuments, DecoderOptions, architectures, detect, build_decoder};
pub use documents::layout_document::LayoutDocument;
pub use error::{Error, HyperparameterKind, Result};
pub use hyperparameters::{Biases, WindowedLayers, AttentionWindows};
pub use overrides::Overrides;
pub use layout::{HUGGING_FACE, SizeKeys, CheckpointLayout, META};
pub use translate::{Translated, translate};
pub use note::DecoderNote;
pub use decoder_spec::DecoderSpec;
pub use legacy_attributes::LegacyAttributes;
pub use rope::{Llama3, LongRope, Rope, Scaling, Yarn};
pub use sizes::Decoder;
pub use weight::{LayerPart, Weight};
pub use no_model_reason::NoModelReason;
