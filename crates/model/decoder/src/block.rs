//! What the layers of a decoder compute, besides their sizes: one set of flags for all architectures.
//!
//! The default is LLaMA's. An architecture sets what it does differently, and everything that computes reads the flags, so
//! that no architecture is named outside of its file.
//!
//! Facts: the modeling files of Hugging Face's `transformers` 5.23.

use serde::{Deserialize, Serialize};

/// What all layers compute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Block {
    /// The kind of all norms.
    pub norm: NormKind,
    /// Where the norms of a layer are.
    pub norms: NormPlace,
    /// The norm of queries and keys, before positions.
    pub head_norm: Option<HeadNorm>,
    /// What happens to the scores of attention.
    pub scores: Scores,
    /// What the gate goes through in the feed-forward layer.
    pub activation: Activation,
    /// Whether the feed-forward layer reads what attention reads, the first norm's result, and both are added at once.
    /// Such a layer has one norm.
    pub parallel: bool,
    /// The constants that rows are multiplied with.
    pub scales: Scales,
    /// The experts of the layers that have some.
    pub experts: Option<Experts>,
}

/// A kind of norm over the last dimension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NormKind {
    /// `x / sqrt(mean(x²) + eps) × weight`.
    #[default]
    Rms,
    /// `x / sqrt(mean(x²) + eps) × (1 + weight)`.
    RmsPlusOne,
    /// `(x − mean(x)) / sqrt(var(x) + eps) × weight`, plus a bias unless it is the norm of queries and keys.
    Layer,
}

/// Where the norms of a layer are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NormPlace {
    /// Before attention and before the feed-forward layer.
    #[default]
    Before,
    /// After them, before their results are added to the rows.
    After,
    /// Before and after.
    Both,
}

/// Which numbers of queries and keys one norm covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeadNorm {
    /// Each head; all heads have the same weight: `[head_dim]`.
    Head,
    /// Each head has its own weight: `[head_dim]`.
    EachHead,
    /// All heads together: `[heads × head_dim]`.
    Projection,
}

/// What happens to the scores of attention: products of queries and keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scores {
    /// What they are multiplied with; `None` is `1 / sqrt(head_dim)`.
    pub scale: Option<f64>,
    /// A cap `c`: scores become `c × tanh(score / c)`, before those of hidden tokens are removed.
    pub soft_cap: Option<f64>,
    /// Whether each query head has a score of its own that takes part in the softmax and then is dropped.
    pub sinks: bool,
}

/// What the gate goes through in a feed-forward layer. `down(act(gate(x)) × up(x))`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Activation {
    /// `x × sigmoid(x)`.
    #[default]
    Silu,
    /// GELU with the error function.
    Gelu,
    /// GELU approximated with tanh.
    GeluTanh,
    /// `gate × sigmoid(alpha × gate) × (up + 1)`, with `gate` at most `limit`, and `up` from `-limit` to `limit`.
    ClampedSwiglu {
        /// The slope of the sigmoid.
        alpha: f64,
        /// The limit of both.
        limit: f64,
    },
}

/// Constants that rows are multiplied with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scales {
    /// For embeddings.
    pub embedding: f64,
    /// For what a layer adds to the rows.
    pub residual: f64,
    /// For logits.
    pub logits: f64,
    /// A cap `c`: logits become `c × tanh(logit / c)`.
    pub logits_soft_cap: Option<f64>,
}

impl Default for Scales {
    fn default() -> Self {
        Self { embedding: 1.0, residual: 1.0, logits: 1.0, logits_soft_cap: None }
    }
}

/// A mixture of experts: feed-forward layers, a few of which each token goes through.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    /// How many there are.
    pub count: u64,
    /// How many each token goes through.
    pub per_token: u64,
    /// The width of one.
    pub hidden: u64,
    /// When the router's softmax is computed.
    pub softmax: Softmax,
    /// Whether the chosen experts' probabilities are divided by their sum.
    pub renormalised: bool,
    /// Whether the router and the experts have biases.
    pub biases: bool,
    /// Whether gate and up are one matrix whose rows alternate: [`Part::W13`](crate::Part::W13).
    pub interleaved: bool,
    /// The shared expert, which all tokens go through.
    pub shared: Option<Shared>,
    /// For each layer, whether it has experts; otherwise it has a feed-forward layer.
    pub layers: Vec<bool>,
}

/// When the router's softmax is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Softmax {
    /// Over all experts, before some are chosen.
    BeforeChoice,
    /// Over the chosen ones.
    AfterChoice,
}

/// An expert that all tokens go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    /// Its width.
    pub hidden: u64,
    /// Whether its result is multiplied with the sigmoid of a product of the token: [`Part::SharedGate`](crate::Part::SharedGate).
    pub gated: bool,
}

impl Block {
    /// Whether the layer has experts instead of a feed-forward layer.
    pub fn has_experts(&self, layer: u64) -> bool {
        let layer = usize::try_from(layer).unwrap_or(usize::MAX);
        self.experts.as_ref().is_some_and(|experts| experts.layers.get(layer) == Some(&true))
    }
}
