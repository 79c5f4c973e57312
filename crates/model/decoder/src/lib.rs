//! Describes a decoder-only language model from its documents, tensor names and shapes.
//!
//! [`detect`] and [`build_decoder`] read Meta's `params.json` or Hugging Face's `config.json`, compare them with the shapes of the
//! tensors, and return a [`Decoder`]: its sizes, rotary embeddings, sliding windows and biases. [`Decoder::assign`] maps its
//! weights to tensors. The TorchScript text and any other implementation of the forward pass can be built from a
//! [`Decoder`].
//!
//! ```
//! use tensor::{Dtype, Storage, Tensor};
//!
//! let storage = Storage::owned(vec![0; 24]);
//! let tensor = Tensor::new(Dtype::BFloat16, vec![3, 4], vec![4, 1], 0, storage)?;
//! let found = decoder::detect(&[("fc.weight".to_owned(), tensor)].into(), &decoder::DecoderOptions::default())?;
//! let decoder::Detected::Weights { no_model_reason, .. } = found else { panic!("one matrix is not a language model") };
//! assert_eq!(no_model_reason, decoder::NoModelReason::NoArchitecture);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Facts: `model.py` and `args.py` in Meta's `llama-models` 0.3.0, the configuration and modeling files of
//! Hugging Face's `transformers` 5.23; each file names those it follows.

mod alibi;
mod architecture;
mod architectures;
mod assign;
mod block;
mod config_defaults;
mod decoder_spec;
mod delta_net;
mod detect;
mod documents;
mod error;
mod feed_forward;
mod frequencies;
mod hyperparameters;
pub mod interface;
mod layer_inputs;
mod layer_sizes;
mod layout;
mod learned_positions;
mod megatron;
mod megatron_names;
mod missing_blocks;
mod mixed_heads;
mod multimodal;
mod no_model_reason;
mod note;
mod other_parts;
mod overrides;
mod param_error;
mod query_scale;
mod rope;
mod router;
mod shape;
mod sizes;
mod translate;
mod validate;
mod weight;

pub use alibi::Alibi;
pub use architecture::Architecture;
pub use assign::{AssignedWeight, Assignment};
pub use block::{Block, Experts, HeadNormScope, NormKind, NormPlace, Scales, Scores, SharedExpert};
pub use byte_source::{Error, Result};
pub use delta_net::{DeltaNet, DeltaSizes};
pub use detect::{DecoderOptions, Detected, ModelDocuments, architectures, build_decoder, detect};
pub use documents::layout_document::LayoutDocument;
pub use documents::token_ids::TokenDocuments;
pub use error::{HyperparameterKind, Problem};
pub use feed_forward::{Activation, FeedForwardKind};
pub use hyperparameters::{AttentionWindows, Biases, WindowedLayers};
pub use layer_inputs::LayerInputs;
pub use layer_sizes::CacheLayers;
pub use layout::{LayoutOwner, SizeKeys, TensorNames};
pub use learned_positions::LearnedPositions;
pub use mixed_heads::MixedHeads;
pub use no_model_reason::NoModelReason;
pub use note::DecoderNote;
pub use overrides::Overrides;
pub use query_scale::QueryScale;
pub use rope::{Llama3, LongRope, Rope, RopeScaling, Yarn};
pub use router::Router;
pub use sizes::Decoder;
pub use translate::{TranslatedModel, translate};
pub use weight::{LayerPart, Weight};
