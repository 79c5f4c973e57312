//! What a document or a person says of a decoder: all that an architecture translates into.

use super::rope::Rope;

/// What is said of a decoder beside its tensors; of what is open, the shapes tell.
#[derive(Clone, Debug)]
pub(in crate::code) struct Said {
    pub(in crate::code) dim: Option<u64>,
    pub(in crate::code) n_layers: Option<u64>,
    pub(in crate::code) n_heads: Option<u64>,
    pub(in crate::code) n_kv_heads: Option<u64>,
    pub(in crate::code) head_dim: Option<u64>,
    /// The width of the feed-forward layers.
    pub(in crate::code) hidden: Option<u64>,
    pub(in crate::code) vocab: Option<u64>,
    pub(in crate::code) norm_eps: f64,
    pub(in crate::code) rope: Rope,
    /// Whether the embeddings are the output's matrix where that has no tensor.
    pub(in crate::code) tied: bool,
    /// Whether there is a document.
    pub(in crate::code) document: bool,
    /// Whether only a person says how many heads there are.
    pub(in crate::code) heads_asked: bool,
    pub(in crate::code) windows: Windows,
    pub(in crate::code) biases: Biases,
    /// What a user should know.
    pub(in crate::code) notes: Vec<String>,
}

/// How far attention looks back.
#[derive(Clone, Debug, Default)]
pub(in crate::code) struct Windows {
    /// Tokens, itself among them; `None` for all.
    pub(in crate::code) size: Option<u64>,
    pub(in crate::code) layers: Windowed,
}

/// Which layers have a window.
#[derive(Clone, Debug, Default)]
pub(in crate::code) enum Windowed {
    #[default]
    All,
    /// From this layer on.
    From(u64),
    Listed(Vec<bool>),
}

impl Windowed {
    pub(super) fn at(&self, layer: u64) -> bool {
        match self {
            Self::All => true,
            Self::From(first) => layer >= *first,
            Self::Listed(layers) => usize::try_from(layer).ok().and_then(|at| layers.get(at)) == Some(&true),
        }
    }
}

/// Which matrices have biases.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::code) struct Biases {
    pub(in crate::code) qkv: bool,
    pub(in crate::code) output: bool,
    pub(in crate::code) feed_forward: bool,
}

impl Biases {
    pub(super) fn of(self, part: &str) -> bool {
        match part {
            "wq" | "wk" | "wv" => self.qkv,
            "wo" => self.output,
            "w1" | "w2" | "w3" => self.feed_forward,
            _ => false,
        }
    }
}
