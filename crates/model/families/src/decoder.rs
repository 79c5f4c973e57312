//! Decoders of one kind of layer: what differs between them is data.

use crate::config::Config;
use crate::indices::Indices;
use crate::parts::{Dims, gated, low_rank_attention};
use crate::size::Size;
use crate::tree::Scope;

/// Whether linear layers have biases.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bias {
    No,
    Yes,
    /// Those of classes whose configuration has this key, if it is true.
    Key(&'static str),
}

impl Bias {
    pub(crate) fn of(self, c: &Config<'_>) -> bool {
        match self {
            Self::No => false,
            Self::Yes => true,
            Self::Key(key) => c.flag(key),
        }
    }
}

/// Norms of queries and keys.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HeadNorms {
    None,
    /// Of one head, for all of them.
    Head(&'static str, &'static str),
    /// Of all heads together.
    All,
    /// With a weight for each head, if the key is true.
    Each(&'static str),
    /// Of one head, if the key is true.
    HeadIf(&'static str),
    /// A module for each head, if the key is true.
    Modules(&'static str),
    /// With a bias, if the key is true.
    Biased(&'static str),
}

impl HeadNorms {
    pub(crate) const QK: Self = Self::Head("q_norm", "k_norm");
}

/// Names of the projections.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Projections {
    /// Queries, keys, values and output.
    Four(&'static str),
    /// Queries, keys and values in one tensor.
    Joined,
    /// Low-rank queries and keys with values.
    LowRank,
}

/// Feed-forward network of a layer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mlp {
    /// `gate_proj`, `up_proj` and `down_proj`.
    Gated(Bias),
    /// `gate_up_proj` and `down_proj`.
    GatedJoined,
    /// Two layers of these names.
    Plain(&'static str, &'static str, Bias),
    /// `up_proj` and `down_proj`, and the numbers of an activation that is learned.
    Xielu,
}

/// Experts of a layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpertLayer {
    /// Module that has the router and the experts.
    pub(crate) at: &'static str,
    /// Key of the number of experts.
    pub(crate) count: &'static str,
    /// Key of the width of an expert.
    pub(crate) inner: &'static str,
    /// Weight of the router.
    pub(crate) router: &'static str,
    /// Buffers and biases with a number for each expert.
    pub(crate) per_expert: &'static [&'static str],
    pub(crate) shared: Shared,
    /// Layers that have experts.
    pub(crate) sparse: fn(&Config<'_>, u32) -> bool,
    /// True if the experts are [in, out] and have biases.
    pub(crate) is_transposed: bool,
}

/// Expert that each token uses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shared {
    None,
    /// `shared_expert` of the width that a key gives, with a gate.
    Gated(&'static str),
    /// `shared_experts` of as many widths of an expert as a key says.
    Several(&'static str),
    /// `shared_mlp` next to the experts, with gate and up in one tensor.
    Joined(&'static str),
}

/// A decoder whose layers are attention and a feed-forward network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoder {
    pub(crate) projections: Projections,
    pub(crate) qkv_bias: Bias,
    pub(crate) out_bias: Bias,
    pub(crate) head_norms: HeadNorms,
    /// Tensors of the attention with a number for each head.
    pub(crate) per_head: &'static [&'static str],
    pub(crate) mlp: Mlp,
    pub(crate) experts: Option<ExpertLayer>,
    /// Norms of a layer.
    pub(crate) norms: &'static [&'static str],
    pub(crate) norm_bias: Bias,
    /// Norm after the last layer.
    pub(crate) last_norm: Option<&'static str>,
}

pub(crate) const NORMS: &[&str] = &["input_layernorm", "post_attention_layernorm"];
/// Norms of layers that have them after their parts.
pub(crate) const NORMS_AFTER: &[&str] = &["post_attention_layernorm", "post_feedforward_layernorm"];

pub(crate) const LLAMA: Decoder = Decoder {
    projections: Projections::Four("o_proj"),
    qkv_bias: Bias::Key("attention_bias"),
    out_bias: Bias::Key("attention_bias"),
    head_norms: HeadNorms::None,
    per_head: &[],
    mlp: Mlp::Gated(Bias::Key("mlp_bias")),
    experts: None,
    norms: NORMS,
    norm_bias: Bias::No,
    last_norm: Some("norm"),
};

/// Experts in all layers.
pub(crate) const EXPERTS: ExpertLayer = ExpertLayer {
    at: "mlp",
    count: "num_experts",
    inner: "moe_intermediate_size",
    router: "gate.weight",
    per_expert: &[],
    shared: Shared::None,
    sparse: |_, _| true,
    is_transposed: false,
};
/// The same with the keys of Mixtral's configuration.
pub(crate) const LOCAL_EXPERTS: ExpertLayer =
    ExpertLayer { count: "num_local_experts", inner: "intermediate_size", ..EXPERTS };

impl Decoder {
    /// Adds the tensors of the decoder.
    pub(crate) fn add(&self, c: &Config<'_>, s: &Scope<'_>) {
        s.tensor("embed_tokens.weight", &[c.size("vocab_size"), c.size("hidden_size")]);
        self.add_layers(c, s, &c.layers());
        if let Some(norm) = self.last_norm {
            s.module(norm, &[c.size("hidden_size")], self.norm_bias.of(c));
        }
    }

    /// Adds the tensors of these layers.
    pub(crate) fn add_layers(&self, c: &Config<'_>, s: &Scope<'_>, layers: &Indices) {
        let l = s.each("layers", layers);
        self.attention(c, &l.at("self_attn"));
        self.norms(c, &l);
        self.feed_forward(c, s, layers);
    }

    pub(crate) fn norms(&self, c: &Config<'_>, l: &Scope<'_>) {
        // A StableLM whose branches are parallel has one norm for both.
        let is_parallel = c.model_type == "stablelm" && c.flag("use_parallel_residual");
        for norm in self.norms.iter().take(if is_parallel { 1 } else { self.norms.len() }) {
            l.module(norm, &[c.size("hidden_size")], self.norm_bias.of(c));
        }
    }

    /// Adds the feed-forward networks of these layers, which are experts in some.
    pub(crate) fn feed_forward(&self, c: &Config<'_>, s: &Scope<'_>, layers: &Indices) {
        let (sparse, dense) = match &self.experts {
            Some(experts) => layers.partition(|layer| (experts.sparse)(c, layer)),
            None => (Indices::below(0), layers.clone()),
        };
        if dense.len() > 0 {
            self.mlp.add(c, &s.each("layers", &dense).at("mlp"));
        }
        if let Some(experts) = &self.experts {
            experts.add(c, &s.each("layers", &sparse));
        }
    }

    pub(crate) fn attention(&self, c: &Config<'_>, a: &Scope<'_>) {
        let Dims { hidden, heads, kv, head } = Dims::of(c);
        let (qkv_bias, out_bias) = (self.qkv_bias.of(c), self.out_bias.of(c));
        match self.projections {
            Projections::Four(out) => {
                a.linear("q_proj", [heads * head, hidden], qkv_bias);
                a.linear("k_proj", [kv * head, hidden], qkv_bias);
                a.linear("v_proj", [kv * head, hidden], qkv_bias);
                a.linear(out, [hidden, heads * head], out_bias);
            }
            Projections::Joined => {
                a.linear("qkv_proj", [(heads + kv * 2) * head, hidden], qkv_bias);
                a.linear("o_proj", [hidden, heads * head], out_bias);
            }
            Projections::LowRank => low_rank_attention(c, a),
        }
        for name in self.per_head {
            a.tensor(name, &[heads]);
        }
        match self.head_norms {
            HeadNorms::HeadIf(key)
            | HeadNorms::Each(key)
            | HeadNorms::Modules(key)
            | HeadNorms::Biased(key)
                if !c.flag(key) => {}
            HeadNorms::None => {}
            HeadNorms::Head(q, k) => {
                for norm in [q, k] {
                    a.module(norm, &[head], false);
                }
            }
            HeadNorms::HeadIf(_) => {
                for norm in ["q_norm", "k_norm"] {
                    a.module(norm, &[head], false);
                }
            }
            HeadNorms::All => {
                a.module("q_norm", &[heads * head], false);
                a.module("k_norm", &[kv * head], false);
            }
            HeadNorms::Each(_) => {
                a.module("q_norm", &[heads, head], false);
                a.module("k_norm", &[kv, head], false);
            }
            HeadNorms::Modules(_) => {
                for (norm, count) in [("q_layernorm", heads), ("k_layernorm", kv)] {
                    a.at(norm).each("norms", &Indices::below(count.0)).module("", &[head], false);
                }
            }
            HeadNorms::Biased(_) => {
                for norm in ["q_layernorm", "k_layernorm"] {
                    a.module(norm, &[head], true);
                }
            }
        }
    }
}

impl Mlp {
    fn add(self, c: &Config<'_>, m: &Scope<'_>) {
        let (hidden, inner) = (c.size("hidden_size"), c.size("intermediate_size"));
        match self {
            Self::Gated(bias) => gated(m, hidden, inner, bias.of(c)),
            Self::GatedJoined => {
                m.linear("gate_up_proj", [inner * 2, hidden], false);
                m.linear("down_proj", [hidden, inner], false);
            }
            Self::Plain(up, down, bias) => {
                m.linear(up, [inner, hidden], bias.of(c));
                m.linear(down, [hidden, inner], bias.of(c));
            }
            Self::Xielu => {
                m.linear("up_proj", [inner, hidden], false);
                m.linear("down_proj", [hidden, inner], false);
                if c.text("hidden_act") == "xielu" {
                    m.tensor("act_fn.alpha_p", &[Size(1)]);
                    m.tensor("act_fn.alpha_n", &[Size(1)]);
                    m.tensor("act_fn.beta", &[]);
                    m.tensor("act_fn.eps", &[]);
                }
            }
        }
    }
}

impl ExpertLayer {
    /// Adds the router, the experts and what they share.
    pub(crate) fn add(&self, c: &Config<'_>, l: &Scope<'_>) {
        let (hidden, inner) = (c.size("hidden_size"), c.size(self.inner));
        let count = Size(c.count(self.count));
        let m = l.at(self.at);
        m.tensor(self.router, &[count, hidden]);
        for name in self.per_expert {
            m.tensor(name, &[count]);
        }
        if c.model_type == "ernie4_5_moe" {
            m.tensor("gate.moe_statics.e_score_correction_bias", &[Size(1), count]);
        }
        let e = m.at("experts");
        if self.is_transposed {
            let e = e.columns_first();
            e.tensor("gate_up_proj_bias", &[count, inner * 2]);
            e.tensor("down_proj_bias", &[count, hidden]);
            e.stacked("gate_up_proj", &[count, hidden, inner * 2]);
            e.stacked("down_proj", &[count, inner, hidden]);
        } else {
            e.stacked("gate_up_proj", &[count, inner * 2, hidden]);
            e.stacked("down_proj", &[count, hidden, inner]);
        }
        match self.shared {
            Shared::None => {}
            Shared::Gated(key) => {
                gated(&m.at("shared_expert"), hidden, c.size(key), false);
                m.linear("shared_expert_gate", [Size(1), hidden], false);
            }
            Shared::Several(key) => {
                let shared = c.number(key).unwrap_or_default();
                if shared > Size(0) {
                    gated(&m.at("shared_experts"), hidden, inner * shared, c.flag("use_bias"));
                }
            }
            Shared::Joined(key) => {
                let shared = c.number(key).unwrap_or_default();
                if shared > Size(0) {
                    let m = l.at("shared_mlp");
                    m.linear("input_linear", [shared * 2, hidden], false);
                    m.linear("output_linear", [hidden, shared], false);
                }
            }
        }
    }
}
