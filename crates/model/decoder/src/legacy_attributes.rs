//! Rebuilds a decoder from the attributes of its module, without the documents of the checkpoint.
//!
//! Facts: `torchscript` writes these values into the module's attributes and text. The other sizes are inferred from the
//! shapes of the tensors, as in a conversion.

use tensor::Tensors;

use crate::block::Block;
use crate::detect::find_architecture;
use crate::hyperparameters::{AttentionWindows, Biases, Hyperparameters, RotaryDims};
use crate::rope::Rope;
use crate::sizes::Decoder;
use crate::{Error, Result};

/// Attributes of a module that describe its decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct LegacyAttributes {
    /// Class of the module, such as `Llama`.
    pub class: String,
    /// Number of layers in the model.
    pub n_layers: u64,
    /// Number of heads of keys and values.
    pub n_kv_heads: u64,
    /// Size of a head.
    pub head_dim: u64,
    /// Size of the vocabulary.
    pub vocab: u64,
    /// Epsilon of the norms.
    pub norm_eps: f64,
    pub rope: Rope,
    pub windows: AttentionWindows,
    pub biases: Biases,
}

impl Decoder {
    /// Rebuilds the decoder of a module over these tensors.
    ///
    /// # Errors
    /// Returns an error if no architecture has this class, if the names of the tensors fit none of its layouts, or if the
    /// facts contradict each other or the shapes.
    pub fn from_legacy_attributes(recorded: LegacyAttributes, tensors: &Tensors) -> Result<Self> {
        let LegacyAttributes {
            class,
            n_layers,
            n_kv_heads,
            head_dim,
            vocab,
            norm_eps,
            rope,
            windows,
            biases,
        } = recorded;
        let Some(architecture) = find_architecture(|known| known.class == class) else {
            return Err(Error::UnknownArchitecture { name: class });
        };
        let layout = architecture.find_layout(tensors)?;
        let facts = Hyperparameters {
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
            heads_from_caller: false,
            windows,
            biases,
            block: Block::default(),
            rotated: RotaryDims::All,
            more_ropes: Vec::new(),
            rope_of_layer: None,
            notes: Vec::new(),
        };
        Self::new(architecture, layout, facts, tensors)
    }
}
