//! The sizes and hyperparameters of a decoder.
//!
//! An architecture translates its document into [`Hyperparameters`]. [`Decoder::new`] infers missing sizes from the shapes and checks
//! the others against them; [`Decoder::assign`] checks every tensor.
//!
//! Facts: `model.py` in Meta's `llama-models` 0.3.0 and `modeling_llama.py` in Hugging Face's `transformers` 5.23, for names
//! and shapes.

use std::fmt::Display;

use tensor::Tensors;

use crate::architecture::Architecture;
use crate::block::Block;
use crate::frequencies::RotaryFrequencies;
use crate::hyperparameters::{AttentionWindows, Biases, Hyperparameters};
use crate::layout::{LayoutOwner, SizeKeys, TensorNames, is_frequencies_name};
use crate::param_error::MakeParamError;
use crate::rope::{Rope, THETA};
use crate::validate::HyperparameterCheck;
use crate::weight::{LayerPart, Weight, of_hidden};
use crate::{DecoderNote, Error, HyperparameterKind, Overrides, Problem, Result};

/// A decoder-only language model whose documents and tensor shapes agree.
#[derive(Clone, Debug)]
pub struct Decoder {
    architecture: &'static Architecture,
    names: TensorNames,
    dim: u64,
    n_layers: u64,
    n_heads: u64,
    n_kv_heads: u64,
    head_dim: u64,
    hidden: u64,
    vocab: u64,
    norm_eps: f64,
    rotated: u64,
    ropes: Vec<Rope>,
    /// Index into `ropes` for each layer; `None` means that all layers use the first.
    pub(crate) rope_of_layer: Option<Vec<Option<usize>>>,
    windows: AttentionWindows,
    biases: Biases,
    block: Block,
    /// Layers of the checkpoint that text does not go through, in order.
    pub(crate) skipped_layers: Vec<u64>,
    /// Rows of the embeddings beyond those of the vocabulary.
    pub(crate) other_embeddings: u64,
    pub(crate) tied: bool,
    pub(crate) notes: Vec<DecoderNote>,
}

impl Decoder {
    /// Builds a decoder from facts, and infers missing sizes from the shapes.
    ///
    /// # Errors
    /// Returns an error if the facts contradict each other or the shapes, or if the number of heads is neither stated nor
    /// inferable.
    #[expect(clippy::too_many_lines, reason = "each size has its checks")]
    pub(crate) fn new(
        architecture: &'static Architecture,
        names: TensorNames,
        facts: Hyperparameters,
        tensors: &Tensors,
    ) -> Result<Self> {
        let (file, keys) = (names.owner.file(), names.owner.keys());
        let wrong = |key: &str, found: &dyn Display, expected: String| {
            let file = facts.has_document.then_some(file);
            let (key, found) = (key.to_owned(), found.to_string());
            Error::from(Problem::InvalidParam { file, key, found, expected })
        };
        let skipped = &facts.skipped_layers;
        let n_layers = count_layers(&names, &facts, tensors, &wrong)?;
        let first = stored_layer(skipped, 0);
        let size = |name: String, dimension: usize| {
            let tensor = tensors.get(name.as_str());
            let size = tensor.and_then(|tensor| tensor.shape().get(dimension).copied());
            size.ok_or(Problem::MissingTensor { name, n_layers })
        };
        let name = |part| names.name_or_role(Weight::Layer { layer: first, part });
        let embedding = || names.name_or_role(Weight::Embedding);
        let dim = facts.dim.map_or_else(|| size(embedding(), 1), Ok)?;
        let n_heads = match (facts.n_heads, facts.head_dim) {
            (None, Some(head_dim)) if !names.is_fused(LayerPart::Wq) => {
                size(name(LayerPart::Wq), 0)?.checked_div(head_dim)
            }
            (n_heads, _) => n_heads,
        };
        let Some(n_heads) = n_heads else {
            let has_document = facts.has_document;
            let facts = vec![HyperparameterKind::Heads];
            return Err(Problem::MissingHyperparameters { file, has_document, facts }.into());
        };
        let given = |expected: String| Problem::InvalidHeads { found: n_heads, expected };
        let head_dim = facts.head_dim.or_else(|| dim.checked_div(n_heads)).unwrap_or(0);
        if facts.head_dim.is_none() && head_dim.checked_mul(n_heads) != Some(dim) {
            let expected = format!("a divisor of {} {dim}", keys.dim);
            return Err(if facts.heads_from_caller {
                given(expected).into()
            } else {
                wrong(keys.n_heads, &n_heads, expected)
            });
        }
        if head_dim == 0 || !head_dim.is_multiple_of(2) {
            return Err(if facts.heads_from_caller && facts.head_dim.is_none() {
                given(format!("a number that makes the size of a head even, not {head_dim}")).into()
            } else {
                wrong(keys.head_dim, &head_dim, "an even number, because RoPE rotates pairs".to_owned())
            });
        }
        let (rotated, wk) = (facts.rotated.rotary_count(head_dim), name(LayerPart::Wk));
        let kv_heads = || size(wk.clone(), 0).map(|rows| rows.checked_div(head_dim).unwrap_or(0));
        let n_kv_heads = facts.n_kv_heads.map_or_else(kv_heads, Ok)?;
        if n_kv_heads == 0 || n_heads.checked_rem(n_kv_heads) != Some(0) {
            return Err(if !facts.heads_from_caller {
                wrong(keys.n_kv_heads, &n_kv_heads, format!("a divisor of {} {n_heads}", keys.n_heads))
            } else if n_kv_heads == 0 {
                given(format!("a number that makes a head no larger than the first dimension of `{wk}`"))
                    .into()
            } else {
                given(format!("a multiple of {} {n_kv_heads}", keys.n_kv_heads)).into()
            });
        }
        let experts = facts.block.experts.as_ref().filter(|_| facts.block.has_experts(0));
        let hidden = facts.hidden.or(experts.map(|experts| experts.hidden));
        let hidden = hidden.map_or_else(|| size(name(of_hidden(&facts.block)), 0), Ok)?;
        let vocab = facts.vocab.map_or_else(|| size(embedding(), 0), Ok)?;
        let ropes = [vec![facts.rope], facts.more_ropes].concat();
        let checked = HyperparameterCheck {
            keys,
            n_layers,
            n_heads,
            head_norm_bias: facts.biases.head_norm,
            head_dim,
            rotated,
            norm_eps: facts.norm_eps,
            ropes: &ropes,
            rope_of_layer: facts.rope_of_layer.as_deref(),
            windows: &facts.windows,
            block: &facts.block,
            skipped_layers: skipped,
        };
        checked.check(&wrong)?;
        Self {
            architecture,
            names,
            dim,
            n_layers,
            n_heads,
            n_kv_heads,
            head_dim,
            hidden,
            vocab,
            norm_eps: facts.norm_eps,
            rotated,
            ropes,
            rope_of_layer: facts.rope_of_layer,
            windows: facts.windows,
            biases: facts.biases,
            block: facts.block,
            skipped_layers: facts.skipped_layers,
            other_embeddings: facts.other_embeddings,
            tied: facts.tied,
            notes: facts.notes,
        }
        .reject_zero_sizes(&wrong)
    }

    fn reject_zero_sizes(self, wrong: MakeParamError<'_>) -> Result<Self> {
        let keys = self.keys();
        let sizes = [
            (keys.dim, self.dim),
            (keys.n_layers, self.n_layers),
            (keys.n_heads, self.n_heads),
            (keys.vocab, self.vocab),
            ("feed-forward width", self.hidden),
        ];
        if let Some((key, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(wrong(key, &0, "at least 1".to_owned()));
        }
        match self.block.layer_inputs.filter(|inputs| inputs.vocab < self.vocab) {
            Some(inputs) => {
                let expected = format!("at least {} {}", keys.vocab, self.vocab);
                Err(wrong("vocab_size_per_layer_input", &inputs.vocab, expected))
            }
            None => Ok(self),
        }
    }

    /// Returns the architecture of the model.
    pub fn architecture(&self) -> &'static Architecture {
        self.architecture
    }

    /// Returns the names of the tensors.
    pub fn names(&self) -> &TensorNames {
        &self.names
    }

    /// Returns the keys of the sizes in the document of the layout.
    pub(crate) fn keys(&self) -> &'static SizeKeys {
        self.names.owner.keys()
    }

    /// Returns true if rotary embeddings pair the two halves of a head; false if they pair adjacent dimensions.
    pub fn rotates_halves(&self) -> bool {
        self.names.owner == LayoutOwner::HuggingFace && self.architecture.config_defaults.rotates_halves
    }

    /// Returns the width of the model.
    pub fn dim(&self) -> u64 {
        self.dim
    }

    /// Returns the number of layers.
    pub fn n_layers(&self) -> u64 {
        self.n_layers
    }

    /// Returns the number of query heads.
    pub fn n_heads(&self) -> u64 {
        self.n_heads
    }

    /// Returns the number of heads of keys and values; a divisor of [`n_heads`](Self::n_heads).
    pub fn n_kv_heads(&self) -> u64 {
        self.n_kv_heads
    }

    /// Returns the size of a head, an even number.
    pub fn head_dim(&self) -> u64 {
        self.head_dim
    }

    /// Returns the width of the feed-forward layers.
    pub fn hidden(&self) -> u64 {
        self.hidden
    }

    /// Returns the size of the vocabulary.
    pub fn vocab(&self) -> u64 {
        self.vocab
    }

    /// Returns the epsilon of the norms.
    pub fn norm_eps(&self) -> f64 {
        self.norm_eps
    }

    /// Returns the computation that all layers share.
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// Returns the rotary embeddings of the layers, at least one.
    pub fn ropes(&self) -> &[Rope] {
        &self.ropes
    }

    /// Returns the index into [`ropes`](Self::ropes) for a layer; `None` is no rotary embedding.
    pub fn rope_of(&self, layer: u64) -> Option<usize> {
        let Some(ropes) = &self.rope_of_layer else { return Some(0) };
        ropes.get(usize::try_from(layer).ok()?).copied().flatten()
    }

    /// Returns the first rotary embedding, which layers use by default.
    pub fn rope(&self) -> &Rope {
        static NONE: Rope = Rope { theta: THETA, scaling: None };
        self.ropes.first().unwrap_or(&NONE)
    }

    /// Returns the number of rotary dimensions per head, an even number. They are the first dimensions of the head.
    pub fn rotated(&self) -> u64 {
        self.rotated
    }

    /// Returns the rotary frequencies as tensors of checkpoints hold them: unscaled.
    pub(crate) fn frequencies(&self) -> RotaryFrequencies {
        RotaryFrequencies { theta: self.rope().theta, head_dim: self.head_dim }
    }

    /// Returns the number of a layer in the names of tensors, which also count layers that text does not go through.
    pub(crate) fn stored_layer(&self, layer: u64) -> u64 {
        stored_layer(&self.skipped_layers, layer)
    }

    /// Returns the sliding windows of attention.
    pub fn windows(&self) -> &AttentionWindows {
        &self.windows
    }

    /// Returns the flags for biases.
    pub fn biases(&self) -> Biases {
        self.biases
    }
}

/// Returns the number of layers that text goes through. The last layers of the checkpoint may be skipped, and left out.
///
/// # Errors
/// Returns an error if the document states another number.
fn count_layers(
    names: &TensorNames,
    facts: &Hyperparameters,
    tensors: &Tensors,
    wrong: MakeParamError<'_>,
) -> Result<u64> {
    let (skipped, layers) = (&facts.skipped_layers, names.count_layers(tensors.names()));
    let layers = skipped.iter().fold(layers, |count, layer| count.saturating_add(u64::from(*layer == count)));
    match facts.n_layers {
        Some(stated) if stated != layers => {
            let expected = format!("{layers}, the number of layers in the checkpoint");
            Err(wrong(names.owner.keys().n_layers, &stated, expected))
        }
        _ => Ok(layers.saturating_sub(skipped.len() as u64)),
    }
}

/// Returns the number in names of tensors of the layer `layer` among those that are not skipped; `skipped` is in order.
pub(crate) fn stored_layer(skipped: &[u64], layer: u64) -> u64 {
    skipped.iter().fold(layer, |number, skipped| number.saturating_add(u64::from(*skipped <= number)))
}

/// Returns the size of a head if a rotary frequency tensor reveals it, for a checkpoint without the layout's document.
///
/// # Errors
/// Returns an error if a number that the model needs is neither given nor revealed by the shapes.
pub(crate) fn head_dim_without_document(
    owner: LayoutOwner,
    tensors: &Tensors,
    given: &Overrides,
) -> Result<Option<u64>> {
    let frequencies = tensors.iter().find(|(name, _)| is_frequencies_name(name));
    let head_dim = frequencies.and_then(|(_, tensor)| tensor.shape().first()?.checked_mul(2));
    let needed = |fact: HyperparameterKind| {
        fact != HyperparameterKind::RopeFactor && (fact != HyperparameterKind::Heads || head_dim.is_none())
    };
    let missing = given.numbers().into_iter().filter(|(fact, number)| number.is_none() && needed(*fact));
    let facts: Vec<HyperparameterKind> = missing.map(|(fact, _)| fact).collect();
    if facts.is_empty() {
        return Ok(head_dim);
    }
    Err(Problem::MissingHyperparameters { file: owner.file(), has_document: false, facts }.into())
}
