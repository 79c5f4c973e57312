//! Hyperparameters of a decoder that a document or the caller states, in a form common to all architectures.

use serde::{Deserialize, Serialize};

use crate::DecoderNote;
use crate::block::Block;
use crate::rope::Rope;
use crate::weight::LayerPart;

/// Hyperparameters of a decoder that a document or the caller states. A size that is `None` is inferred from the shapes of
/// the tensors.
#[derive(Clone, Debug)]
pub(crate) struct Hyperparameters {
    pub(crate) dim: Option<u64>,
    pub(crate) n_layers: Option<u64>,
    pub(crate) n_heads: Option<u64>,
    pub(crate) n_kv_heads: Option<u64>,
    pub(crate) head_dim: Option<u64>,
    pub(crate) hidden: Option<u64>,
    pub(crate) vocab: Option<u64>,
    pub(crate) norm_eps: f64,
    pub(crate) rope: Rope,
    /// True if the embeddings serve as the output matrix when it has no tensor.
    pub(crate) tied: bool,
    /// True if a document states the hyperparameters.
    pub(crate) has_document: bool,
    /// True if only the caller gives the number of heads.
    pub(crate) heads_from_caller: bool,
    pub(crate) windows: AttentionWindows,
    pub(crate) biases: Biases,
    pub(crate) block: Block,
    pub(crate) rotated: RotaryDims,
    /// Further rotary embeddings, for layers that do not use `rope`.
    pub(crate) more_ropes: Vec<Rope>,
    /// Rotary embedding of each layer: 0 is `rope`, higher indices are `more_ropes`, and `None` is no rotary embedding.
    /// Without a list, all layers use `rope`.
    pub(crate) rope_of_layer: Option<Vec<Option<usize>>>,
    /// Layers of the checkpoint that text does not go through, in order.
    pub(crate) skipped_layers: Vec<u64>,
    /// Rows of the embeddings beyond those of the vocabulary, which stand for no text.
    pub(crate) other_embeddings: u64,
    pub(crate) notes: Vec<DecoderNote>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum RotaryDims {
    #[default]
    All,
    /// Fraction of the head's size, rounded down.
    HeadFraction(f64),
    Count(u64),
}

impl RotaryDims {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "transformers rounds the product of the two down"
    )]
    pub(crate) fn rotary_count(self, head_dim: u64) -> u64 {
        match self {
            Self::All => head_dim,
            Self::HeadFraction(part) => (head_dim as f64 * part) as u64,
            Self::Count(count) => count,
        }
    }
}

/// Sliding-window attention: the size of the window, and the layers that have one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionWindows {
    /// Number of tokens that a token attends to, including itself; `None` is full attention.
    pub size: Option<u64>,
    /// Layers with the window.
    pub layers: WindowedLayers,
}

impl AttentionWindows {
    /// Returns the window of a layer in tokens; `None` is full attention.
    pub fn window_of(&self, layer: u64) -> Option<u64> {
        self.size.filter(|_| self.layers.contains(layer))
    }
}

/// Selection of the layers with a sliding window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WindowedLayers {
    /// Every layer of the decoder.
    #[default]
    All,
    /// The layer with this index and all later ones.
    From(u64),
    /// One flag per layer.
    Listed(Vec<bool>),
}

impl WindowedLayers {
    fn contains(&self, layer: u64) -> bool {
        match self {
            Self::All => true,
            Self::From(first) => layer >= *first,
            Self::Listed(layers) => usize::try_from(layer).ok().and_then(|at| layers.get(at)) == Some(&true),
        }
    }
}

/// Flags for the biases of matrices.
#[expect(clippy::struct_excessive_bools, reason = "each is about other matrices")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Biases {
    /// Biases of the query, key and value matrices.
    pub qkv: bool,
    /// Bias of attention's output matrix.
    pub output: bool,
    /// Biases of the matrices of the feed-forward layer.
    pub feed_forward: bool,
    /// Biases of the norms of queries and keys.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub head_norm: bool,
    /// Bias of the output matrix.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub logits: bool,
}

impl Biases {
    /// Returns true if this matrix of a layer has a bias. False for other parts.
    pub fn contains(self, part: LayerPart) -> bool {
        match part {
            LayerPart::Wq | LayerPart::Wk | LayerPart::Wv | LayerPart::Wqkv => self.qkv,
            LayerPart::Wo => self.output,
            LayerPart::W1 | LayerPart::W2 | LayerPart::W3 => self.feed_forward,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_those_of_the_selected_layers() {
        let windows = |layers: WindowedLayers| {
            let windows = AttentionWindows { size: Some(7), layers };
            [0, 1, 2].map(|layer| windows.window_of(layer).is_some())
        };
        assert_eq!(windows(WindowedLayers::All), [true; 3]);
        assert_eq!(windows(WindowedLayers::From(1)), [false, true, true]);
        assert_eq!(windows(WindowedLayers::Listed(vec![true, false])), [true, false, false]);
        assert_eq!(AttentionWindows { size: Some(7), ..AttentionWindows::default() }.window_of(0), Some(7));
        assert_eq!(AttentionWindows::default().window_of(0), None);
    }

    #[test]
    fn each_flag_is_about_the_biases_of_its_matrices() {
        let parts = |biases: Biases| -> Vec<LayerPart> {
            LayerPart::ALL.into_iter().filter(|part| biases.contains(*part)).collect()
        };
        let none = Biases::default();
        assert_eq!(parts(none), []);
        assert_eq!(parts(Biases { qkv: true, ..none }), [LayerPart::Wq, LayerPart::Wk, LayerPart::Wv]);
        assert_eq!(parts(Biases { output: true, ..none }), [LayerPart::Wo]);
        assert_eq!(
            parts(Biases { feed_forward: true, ..none }),
            [LayerPart::W1, LayerPart::W2, LayerPart::W3]
        );
    }
}
