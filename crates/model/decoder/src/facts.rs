//! The facts about a decoder that a document or the caller states; every architecture translates into these.

use serde::{Deserialize, Serialize};

use crate::Note;
use crate::block::Block;
use crate::rope::Rope;
use crate::weight::Part;

/// The facts about a decoder that a document or the caller states. The shapes of the tensors tell what is `None`.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) dim: Option<u64>,
    pub(crate) n_layers: Option<u64>,
    pub(crate) n_heads: Option<u64>,
    pub(crate) n_kv_heads: Option<u64>,
    pub(crate) head_dim: Option<u64>,
    /// The width of the feed-forward layers.
    pub(crate) hidden: Option<u64>,
    pub(crate) vocab: Option<u64>,
    pub(crate) norm_eps: f64,
    pub(crate) rope: Rope,
    /// Whether the embeddings are used as the output matrix if that has no tensor.
    pub(crate) tied: bool,
    /// Whether there is a document.
    pub(crate) has_document: bool,
    /// Whether the number of heads comes from the caller alone.
    pub(crate) heads_given: bool,
    pub(crate) windows: Windows,
    pub(crate) biases: Biases,
    pub(crate) block: Block,
    pub(crate) rotated: Rotated,
    /// The rotations of layers that have another than `rope`.
    pub(crate) more_ropes: Vec<Rope>,
    /// For each layer, which rotation it has: 0 is `rope`, those after it are `more_ropes`. `None` means that all have `rope`.
    pub(crate) rope_of_layer: Option<Vec<Option<usize>>>,
    pub(crate) notes: Vec<Note>,
}

/// How many of each head's numbers are rotated.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Rotated {
    #[default]
    All,
    /// This part of them.
    Part(f64),
    Count(u64),
}

impl Rotated {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "transformers rounds the product of the two down"
    )]
    pub(crate) fn of(self, head_dim: u64) -> u64 {
        match self {
            Self::All => head_dim,
            Self::Part(part) => (head_dim as f64 * part) as u64,
            Self::Count(count) => count,
        }
    }
}

/// How far attention looks back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Windows {
    /// The number of tokens that a token sees, itself among them; `None` means all.
    pub size: Option<u64>,
    /// The layers that have this window.
    pub layers: Windowed,
}

impl Windows {
    /// The window of a layer, in tokens; `None` means all tokens.
    pub fn at(&self, layer: u64) -> Option<u64> {
        self.size.filter(|_| self.layers.contains(layer))
    }
}

/// Which layers have a window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Windowed {
    /// All of them.
    #[default]
    All,
    /// This layer and all later ones.
    From(u64),
    /// One flag for each layer.
    Listed(Vec<bool>),
}

impl Windowed {
    fn contains(&self, layer: u64) -> bool {
        match self {
            Self::All => true,
            Self::From(first) => layer >= *first,
            Self::Listed(layers) => usize::try_from(layer).ok().and_then(|at| layers.get(at)) == Some(&true),
        }
    }
}

/// Which matrices have biases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Biases {
    /// Those of queries, keys and values.
    pub qkv: bool,
    /// The output of attention.
    pub output: bool,
    /// The three of the feed-forward layer.
    pub feed_forward: bool,
}

impl Biases {
    /// Whether this part of a layer has one.
    pub fn contains(self, part: Part) -> bool {
        match part {
            Part::Wq | Part::Wk | Part::Wv => self.qkv,
            Part::Wo => self.output,
            Part::W1 | Part::W2 | Part::W3 => self.feed_forward,
            _ => false,
        }
    }
}
