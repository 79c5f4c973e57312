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
mod checked;
mod choose;
mod class;
mod documents;
mod error;
mod facts;
mod frequencies;
mod given;
pub mod interface;
mod layout;
mod names;
mod note;
mod record;
mod recorded;
mod rope;
mod sizes;
mod weight;
mod why;

pub use architecture::Architecture;
pub use assign::{Assigned, Assignment};
pub use block::{Activation, Block, Experts, HeadNorm, NormKind, NormPlace, Scales, Scores, Shared, Softmax};
pub use choose::{Detected, Documents, Options, architectures, detect, named};
pub use documents::written::Document;
pub use error::{Error, Fact, Result};
pub use facts::{Biases, Windowed, Windows};
pub use given::Given;
pub use layout::{HUGGING_FACE, Keys, Layout, META};
pub use names::{Translated, translate};
pub use note::Note;
pub use record::DecoderSpec;
pub use recorded::Recorded;
pub use rope::{Llama3, LongRope, Rope, Scaling, Yarn};
pub use sizes::Decoder;
pub use weight::{Part, Weight};
pub use why::WhyWeights;
