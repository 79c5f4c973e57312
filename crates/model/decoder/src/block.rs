//! The computation of a decoder's layers as one set of flags for all architectures.
//!
//! The defaults are LLaMA's. Each architecture sets the flags in which it differs, and all code that computes reads the
//! flags, so that only an architecture's own file names it.
//!
//! Facts: the modeling files of Hugging Face's `transformers` 5.23.

use serde::{Deserialize, Serialize};

use crate::alibi::Alibi;
use crate::delta_net::DeltaNet;
use crate::feed_forward::{Activation, FeedForwardKind};
use crate::layer_inputs::LayerInputs;
use crate::learned_positions::LearnedPositions;
use crate::mixed_heads::MixedHeads;
use crate::query_scale::QueryScale;
use crate::router::Router;

/// Computation that all layers of a decoder share.
#[expect(clippy::struct_excessive_bools, reason = "each is a difference of its own")]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Block {
    /// Kind of all norms.
    pub norm: NormKind,
    /// Position of the norms in a layer.
    pub norms: NormPlace,
    /// Norm of queries and keys, before rotary embeddings.
    pub head_norm: Option<HeadNormScope>,
    /// True if that norm follows rotary embeddings.
    #[serde(skip_serializing_if = "is_default")]
    pub head_norm_last: bool,
    /// Largest absolute value of queries, keys and values, after that norm.
    #[serde(skip_serializing_if = "is_default")]
    pub qkv_limit: Option<f64>,
    /// True if one matrix has the queries, keys and values, by head of keys: its queries, its key, its value. The weight
    /// is [`LayerPart::Wqkv`](crate::LayerPart::Wqkv).
    #[serde(skip_serializing_if = "is_default")]
    pub fused_heads: bool,
    /// True if the query matrix has a gate after the queries of each head, whose sigmoid is the factor of the head's result.
    #[serde(skip_serializing_if = "is_default")]
    pub gated_attention: bool,
    /// Layers of gated `DeltaNet` instead of attention.
    #[serde(skip_serializing_if = "is_default")]
    pub delta_net: Option<DeltaNet>,
    /// Layers whose heads have other sizes, or that use keys and values of earlier ones.
    #[serde(skip_serializing_if = "is_default")]
    pub mixed_heads: Option<MixedHeads>,
    /// Inputs of each layer besides the rows of the one before.
    #[serde(skip_serializing_if = "is_default")]
    pub layer_inputs: Option<LayerInputs>,
    /// True if the result of each layer is multiplied by a number, [`LayerPart::LayerScalar`](crate::LayerPart::LayerScalar).
    #[serde(skip_serializing_if = "is_default")]
    pub layer_scalars: bool,
    /// Positions that are added to the embeddings.
    #[serde(skip_serializing_if = "is_default")]
    pub learned_positions: Option<LearnedPositions>,
    /// Positions that are added to attention's scores. Such a model has no rotary embedding.
    #[serde(skip_serializing_if = "is_default")]
    pub alibi: Option<Alibi>,
    /// True if the embeddings are normalised.
    #[serde(skip_serializing_if = "is_default")]
    pub embedding_norm: bool,
    /// Factor of queries that depends on their position.
    #[serde(skip_serializing_if = "is_default")]
    pub query_scale: Option<QueryScale>,
    /// Scaling and capping of the attention scores.
    pub scores: Scores,
    /// Kind of the dense feed-forward layers.
    #[serde(skip_serializing_if = "is_default")]
    pub feed_forward: FeedForwardKind,
    /// Activation in the feed-forward layer.
    pub activation: Activation,
    /// True if attention and the feed-forward layer both read the result of the first norm, and their results are added at
    /// once. Such a layer has one norm.
    pub parallel: bool,
    /// True if the feed-forward layer of a parallel layer reads the result of a norm of its own instead.
    #[serde(skip_serializing_if = "is_default")]
    pub parallel_norms: bool,
    /// True if the results of attention and of the feed-forward layer are added to what these read, after its norm.
    #[serde(skip_serializing_if = "is_default")]
    pub adds_to_norms: bool,
    /// Scale factors of embeddings, residuals and logits.
    pub scales: Scales,
    /// Mixture of experts, in the layers that have one.
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
    /// `(x − mean(x)) / sqrt(var(x) + eps) × weight`, plus a bias; that of queries and keys has one if
    /// [`Biases::head_norm`](crate::Biases::head_norm) says so.
    Layer,
    /// The same without a bias.
    LayerWithoutBias,
}

/// Position of the norms in a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NormPlace {
    /// Before attention and before the feed-forward layer.
    #[default]
    Before,
    /// After attention and after the feed-forward layer, before the residual addition.
    After,
    /// Before and after attention and the feed-forward layer.
    Both,
}

/// Scope of the norm of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeadNormScope {
    /// One norm per head, with a weight that all heads share: `[head_dim]`.
    Head,
    /// One norm per head, each with a weight of its own: `[head_dim]`.
    EachHead,
    /// One norm per head, with a weight of all heads: `[heads, head_dim]`.
    Heads,
    /// One norm over all heads: `[heads × head_dim]`.
    Projection,
}

/// Processing of attention scores, the products of queries and keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scores {
    /// Factor for the scores; `None` is `1 / sqrt(head_dim)`.
    pub scale: Option<f64>,
    /// Soft cap `c`: scores become `c × tanh(score / c)`, before masking.
    pub soft_cap: Option<f64>,
    /// True if each query head has an attention sink: an extra score that takes part in the softmax and is then dropped.
    pub sinks: bool,
}

/// Scale factors of embeddings, residuals and logits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scales {
    /// Factor for the token embeddings.
    pub embedding: f64,
    /// Factor for the results of attention and the feed-forward layer before the residual addition.
    pub residual: f64,
    /// Factor for the output logits.
    pub logits: f64,
    /// Soft cap `c`: logits become `c × tanh(logit / c)`.
    pub logits_soft_cap: Option<f64>,
}

impl Default for Scales {
    fn default() -> Self {
        Self { embedding: 1.0, residual: 1.0, logits: 1.0, logits_soft_cap: None }
    }
}

/// A mixture of experts: feed-forward layers of which each token passes through a few.
#[expect(clippy::struct_excessive_bools, reason = "each is a difference of its own")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    /// Number of experts in a layer.
    pub count: u64,
    /// Number of experts that the router chooses for each token.
    pub per_token: u64,
    /// Width of an expert's feed-forward layer.
    pub hidden: u64,
    #[serde(rename = "softmax")]
    pub router: Router,
    /// True if the probabilities of the chosen experts are divided by their sum.
    pub renormalised: bool,
    /// True if experts are next to a dense feed-forward layer: each has its norms, and their results are added.
    #[serde(default, skip_serializing_if = "is_default")]
    pub beside_dense: bool,
    /// True if the router and the experts have biases.
    pub biases: bool,
    /// True if gate and up are one matrix with alternating rows: [`LayerPart::W13`](crate::LayerPart::W13).
    pub interleaved: bool,
    /// Shared expert, which processes all tokens.
    pub shared: Option<SharedExpert>,
    /// One flag per layer: true for experts, false for a dense feed-forward layer.
    pub layers: Vec<bool>,
}

/// An expert that processes all tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedExpert {
    /// Width of its feed-forward layer.
    pub hidden: u64,
    /// True if the result is multiplied by the sigmoid of a gate: [`LayerPart::SharedGate`](crate::LayerPart::SharedGate).
    pub gated: bool,
}

/// Returns true for the value that records of older models do not have.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl NormKind {
    /// Returns true if the mean is subtracted.
    pub fn is_centred(self) -> bool {
        matches!(self, Self::Layer | Self::LayerWithoutBias)
    }
}

impl Block {
    /// Returns true if the layer has gated `DeltaNet` instead of attention.
    pub fn has_delta_net(&self, layer: u64) -> bool {
        self.delta_net.as_ref().is_some_and(|delta_net| delta_net.has(layer))
    }

    /// Returns true if attention is of the only kind that may have heads of two sizes.
    pub(crate) fn has_plain_heads(&self) -> bool {
        let Self { head_norm, head_norm_last, fused_heads, qkv_limit, query_scale, scores, .. } = self;
        *head_norm == Some(HeadNormScope::Head)
            && self.norm == NormKind::Rms
            && self.norms == NormPlace::Both
            && !(*head_norm_last || *fused_heads || self.gated_attention)
            && !(self.parallel || self.adds_to_norms || scores.sinks)
            && qkv_limit.is_none()
            && query_scale.is_none()
            && self.delta_net.is_none()
            && self.alibi.is_none()
    }

    /// Returns true if the layer has a dense feed-forward layer.
    pub fn has_dense(&self, layer: u64) -> bool {
        !self.has_experts(layer) || self.has_experts_beside_dense()
    }

    /// Returns true if experts are next to a dense feed-forward layer.
    pub fn has_experts_beside_dense(&self) -> bool {
        self.experts.as_ref().is_some_and(|experts| experts.beside_dense)
    }

    /// Returns true if the layer has experts.
    pub fn has_experts(&self, layer: u64) -> bool {
        let layer = usize::try_from(layer).unwrap_or(usize::MAX);
        self.experts.as_ref().is_some_and(|experts| experts.layers.get(layer) == Some(&true))
    }
}
