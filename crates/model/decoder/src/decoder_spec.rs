//! Serialised form of a decoder, which a module carries so that its decoder can be rebuilt without the documents of the
//! checkpoint.

use serde::{Deserialize, Serialize};
use tensor::Tensors;

use crate::architecture::Architecture;
use crate::block::Block;
use crate::detect::find_architecture;
use crate::hyperparameters::{AttentionWindows, Biases, Hyperparameters, RotaryDims};
use crate::layout::{LayoutOwner, TensorNames};
use crate::rope::Rope;
use crate::sizes::{Decoder, stored_layer};
use crate::{Problem, Result};

/// A decoder as data: everything that the forward needs besides the tensors, and the code version of its module.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DecoderSpec {
    /// Version passed to [`Decoder::record`].
    code_version: u32,
    architecture: String,
    dim: u64,
    n_layers: u64,
    n_heads: u64,
    n_kv_heads: u64,
    head_dim: u64,
    rotated: u64,
    hidden: u64,
    vocab: u64,
    norm_eps: f64,
    ropes: Vec<Rope>,
    /// Index into `ropes` for each layer; `None` means that all layers use the first.
    rope_of_layer: Option<Vec<Option<usize>>>,
    windows: AttentionWindows,
    biases: Biases,
    block: Block,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    skipped_layers: Vec<u64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    other_embeddings: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl DecoderSpec {
    fn into_decoder(self, tensors: &Tensors) -> Result<Decoder> {
        let Some(architecture) = find_architecture(|known| known.name == self.architecture) else {
            return Err(Problem::UnknownArchitecture { name: self.architecture }.into());
        };
        let first = stored_layer(&self.skipped_layers, 0);
        let names = architecture.find_names(first, tensors)?;
        let mut ropes = self.ropes.into_iter();
        let Some(rope) = ropes.next() else {
            return Err(Problem::MissingKey { file: "the record", key: "ropes".to_owned() }.into());
        };
        let facts = Hyperparameters {
            dim: Some(self.dim),
            n_layers: Some(self.n_layers.saturating_add(self.skipped_layers.len() as u64)),
            n_heads: Some(self.n_heads),
            n_kv_heads: Some(self.n_kv_heads),
            head_dim: Some(self.head_dim),
            hidden: Some(self.hidden),
            vocab: Some(self.vocab),
            norm_eps: self.norm_eps,
            rope,
            tied: true,
            has_document: false,
            heads_from_caller: false,
            windows: self.windows,
            biases: self.biases,
            block: self.block,
            rotated: RotaryDims::Count(self.rotated),
            more_ropes: ropes.collect(),
            rope_of_layer: self.rope_of_layer,
            skipped_layers: self.skipped_layers,
            other_embeddings: self.other_embeddings,
            notes: Vec::new(),
        };
        Decoder::new(architecture, names, facts, tensors)
    }
}

impl Decoder {
    /// Serialises everything that the forward needs besides the tensors, and the version of the module's code, as JSON on
    /// one line.
    pub fn record(&self, code_version: u32) -> String {
        let spec = DecoderSpec {
            code_version,
            architecture: self.architecture().name.to_owned(),
            dim: self.dim(),
            n_layers: self.n_layers(),
            n_heads: self.n_heads(),
            n_kv_heads: self.n_kv_heads(),
            head_dim: self.head_dim(),
            rotated: self.rotated(),
            hidden: self.hidden(),
            vocab: self.vocab(),
            norm_eps: self.norm_eps(),
            ropes: self.ropes().to_vec(),
            rope_of_layer: self.rope_of_layer.clone(),
            windows: self.windows().clone(),
            biases: self.biases(),
            block: self.block().clone(),
            skipped_layers: self.skipped_layers.clone(),
            other_embeddings: self.other_embeddings,
        };
        serde_json::to_string(&spec).unwrap_or_default()
    }

    /// Rebuilds the decoder that [`record`](Self::record) wrote, over these tensors. The version of the code is not checked.
    ///
    /// # Errors
    /// Returns an error if the text is not a record, if no architecture has the recorded name, if the tensors have other
    /// names, or if the facts contradict each other or the tensors.
    pub fn from_record(text: &str, tensors: &Tensors) -> Result<Self> {
        let spec: DecoderSpec =
            serde_json::from_str(text).map_err(|error| Problem::Document { file: "the record", error })?;
        spec.into_decoder(tensors)
    }
}

impl Architecture {
    /// Returns the names of these tensors, whose first layer is `first`.
    ///
    /// # Errors
    /// Returns an error if the tensors have none of the architecture's layouts.
    fn find_names(&self, first: u64, tensors: &Tensors) -> Result<TensorNames> {
        let meta = LayoutOwner::Meta.llama_names();
        if self.has_layout(LayoutOwner::Meta) && meta.missing_tensor(first, tensors).is_none() {
            return Ok(meta.clone());
        }
        TensorNames::find(&self.forms(), first, tensors)
            .map_err(|name| Problem::NotThisArchitecture { architecture: self.name, name }.into())
    }
}
