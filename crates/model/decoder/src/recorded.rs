//! A decoder from what the module that was made of it records, without the documents of the checkpoint.
//!
//! Facts: `torchscript` writes these facts into the module's attributes and text. The shapes of the tensors tell the
//! rest, as they do when a checkpoint is converted.

use tensor::Tensors;

use crate::block::Block;
use crate::choose::architecture;
use crate::facts::{Biases, Facts, Rotated, Windows};
use crate::rope::Rope;
use crate::sizes::Decoder;
use crate::{Error, Result};

/// What a module records about its decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// The class of the module, such as `Llama`.
    pub class: String,
    /// The number of layers.
    pub n_layers: u64,
    /// The number of heads of keys and values.
    pub n_kv_heads: u64,
    /// The size of a head.
    pub head_dim: u64,
    /// The number of tokens that the model knows.
    pub vocab: u64,
    /// The epsilon of the norms.
    pub norm_eps: f64,
    /// The rotary positions.
    pub rope: Rope,
    /// How far attention looks back.
    pub windows: Windows,
    /// Which matrices have biases.
    pub biases: Biases,
}

impl Decoder {
    /// The decoder that a module of these tensors records.
    ///
    /// # Errors
    /// When no architecture has this class, its layouts have other names of tensors, or the facts contradict each
    /// other or the shapes.
    pub fn from_recorded(recorded: Recorded, tensors: &Tensors) -> Result<Self> {
        let Recorded { class, n_layers, n_kv_heads, head_dim, vocab, norm_eps, rope, windows, biases } =
            recorded;
        let Some(architecture) = architecture(|known| known.class == class) else {
            return Err(Error::UnknownArchitecture { name: class });
        };
        let layout = architecture.layout(tensors)?;
        let facts = Facts {
            dim: None,
            n_layers: Some(n_layers),
            n_heads: None,
            n_kv_heads: Some(n_kv_heads),
            head_dim: Some(head_dim),
            hidden: None,
            vocab: Some(vocab),
            norm_eps,
            rope,
            tied: true,
            has_document: false,
            heads_given: false,
            windows,
            biases,
            block: Block::default(),
            rotated: Rotated::All,
            more_ropes: Vec::new(),
            rope_of_layer: None,
            notes: Vec::new(),
        };
        Self::new(architecture, layout, facts, tensors)
    }
}
