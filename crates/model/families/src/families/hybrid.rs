//! Decoders that also have layers without attention: state space models, linear attention, convolutions.

use crate::config::Config;
use crate::decoder::{Bias, Decoder, ExpertLayer, HeadNorms, LLAMA, Projections};
use crate::families::moe::{GRANITE_EXPERTS, QWEN_EXPERTS};
use crate::indices::Indices;
use crate::parts::{Dims, gated};
use crate::size::Size;
use crate::tree::Scope;

/// Returns the layers of attention, and the others. Older files name the kinds otherwise.
fn attention_layers(c: &Config<'_>, key: &str, default: impl Fn(u32) -> bool) -> (Indices, Indices) {
    let types = c.texts(key);
    c.layers().partition(|layer| match &types {
        Some(types) => types
            .get(layer as usize)
            .is_some_and(|kind| matches!(*kind, "full_attention" | "attention" | "sliding_attention")),
        None => default(layer),
    })
}

/// A layer of a Qwen model with linear attention, which MTP repeats.
pub(crate) const QWEN: Decoder =
    Decoder { head_norms: HeadNorms::Head("q_norm", "k_norm"), experts: Some(QWEN_EXPERTS), ..LLAMA };
pub(crate) const QWEN_DENSE: Decoder = Decoder { experts: None, ..QWEN };
const QWEN_SPARSE: Decoder =
    Decoder { experts: Some(ExpertLayer { sparse: |_, _| true, ..QWEN_EXPERTS }), ..QWEN };

/// Adds the attention of a Qwen model, whose queries have a gate.
fn qwen_attention(c: &Config<'_>, a: &Scope<'_>) {
    let Dims { hidden, heads, kv, head } = Dims::of(c);
    let bias = c.flag("attention_bias");
    a.linear("q_proj", [heads * head * 2, hidden], bias);
    a.linear("k_proj", [kv * head, hidden], bias);
    a.linear("v_proj", [kv * head, hidden], bias);
    a.linear("o_proj", [hidden, heads * head], bias);
    a.module("q_norm", &[head], false);
    a.module("k_norm", &[head], false);
}

fn qwen(c: &Config<'_>, s: &Scope<'_>, decoder: &Decoder, is_joined: bool) {
    let hidden = c.size("hidden_size");
    s.tensor("embed_tokens.weight", &[c.size("vocab_size"), hidden]);
    let interval = c.number("full_attention_interval").map_or(4, |interval| interval.0);
    let (full, linear) = attention_layers(c, "layer_types", |layer| {
        u64::from(layer).saturating_add(1).is_multiple_of(interval)
    });
    qwen_attention(c, &s.each("layers", &full).at("self_attn"));
    let (keys, values) = (c.size("linear_num_key_heads"), c.size("linear_num_value_heads"));
    let (key, value) = (keys * c.size("linear_key_head_dim"), values * c.size("linear_value_head_dim"));
    let a = s.each("layers", &linear).at("linear_attn");
    a.tensor("dt_bias", &[values]);
    a.tensor("A_log", &[values]);
    a.tensor("conv1d.weight", &[key * 2 + value, Size(1), c.size("linear_conv_kernel_dim")]);
    a.module("norm", &[c.size("linear_value_head_dim")], false);
    a.linear("out_proj", [hidden, value], false);
    if is_joined {
        a.linear("in_proj_qkvz", [key * 2 + value * 2, hidden], false);
        a.linear("in_proj_ba", [values * 2, hidden], false);
    } else {
        a.linear("in_proj_qkv", [key * 2 + value, hidden], false);
        a.linear("in_proj_z", [value, hidden], false);
        a.linear("in_proj_b", [values, hidden], false);
        a.linear("in_proj_a", [values, hidden], false);
    }
    decoder.norms(c, &s.each("layers", &c.layers()));
    decoder.feed_forward(c, s, &c.layers());
    s.module("norm", &[hidden], false);
}

pub(crate) fn qwen3_next(c: &Config<'_>, s: &Scope<'_>) {
    qwen(c, s, &QWEN, true);
}

pub(crate) fn qwen3_5(c: &Config<'_>, s: &Scope<'_>) {
    qwen(c, s, &QWEN_DENSE, false);
}

pub(crate) fn qwen3_5_moe(c: &Config<'_>, s: &Scope<'_>) {
    qwen(c, s, &QWEN_SPARSE, false);
}

/// Adds the heads that predict several tokens ahead.
pub(crate) fn qwen_mtp(c: &Config<'_>, s: &Scope<'_>, layers: u64) {
    let decoder = match c.model_type.as_str() {
        "qwen3_5_text" => QWEN_DENSE,
        _ => QWEN_SPARSE,
    };
    let hidden = c.size("hidden_size");
    s.linear("fc", [hidden, hidden * 2], false);
    for norm in ["pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"] {
        s.module(norm, &[hidden], false);
    }
    let layers = Indices::below(layers);
    let l = s.each("layers", &layers);
    qwen_attention(c, &l.at("self_attn"));
    decoder.norms(c, &l);
    decoder.feed_forward(c, s, &layers);
}

/// Dimensions of a state space module with heads.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of a configuration")]
struct Mamba2 {
    inner: Size,
    heads: Size,
    groups: Size,
    state: Size,
    kernel: Size,
    conv_bias: bool,
    in_bias: bool,
    out_bias: bool,
    has_norm: bool,
}

impl Mamba2 {
    fn add(&self, m: &Scope<'_>, hidden: Size) {
        let channels = self.inner + self.groups * self.state * 2;
        for name in ["dt_bias", "A_log", "D"] {
            m.tensor(name, &[self.heads]);
        }
        m.module("conv1d", &[channels, Size(1), self.kernel], self.conv_bias);
        m.linear("in_proj", [self.inner + channels + self.heads, hidden], self.in_bias);
        if self.has_norm {
            m.module("norm", &[self.inner], false);
        }
        m.linear("out_proj", [hidden, self.inner], self.out_bias);
    }

    /// Dimensions of the models that name the keys so.
    fn prefixed(c: &Config<'_>) -> Self {
        let inner = c.number("mamba_d_ssm").unwrap_or(c.size("hidden_size") * c.size("mamba_expand"));
        Self {
            inner,
            heads: c.size("mamba_n_heads"),
            groups: c.size("mamba_n_groups"),
            state: c.size("mamba_d_state"),
            kernel: c.size("mamba_d_conv"),
            conv_bias: c.flag("mamba_conv_bias"),
            in_bias: c.flag("mamba_proj_bias"),
            out_bias: c.flag("mamba_proj_bias"),
            has_norm: true,
        }
    }
}

pub(crate) fn granite(c: &Config<'_>, s: &Scope<'_>) {
    let hidden = c.size("hidden_size");
    s.tensor("embed_tokens.weight", &[c.size("vocab_size"), hidden]);
    let (full, mamba) = attention_layers(c, "layer_types", |_| false);
    let all = s.each("layers", &c.layers());
    LLAMA.norms(c, &all);
    LLAMA.attention(c, &s.each("layers", &full).at("self_attn"));
    Mamba2::prefixed(c).add(&s.each("layers", &mamba).at("mamba"), hidden);
    if c.count("num_local_experts") > 0 {
        GRANITE_EXPERTS.add(c, &all);
    } else {
        let (m, inner) = (all.at("shared_mlp"), c.size("shared_intermediate_size"));
        m.linear("input_linear", [inner * 2, hidden], false);
        m.linear("output_linear", [hidden, inner], false);
    }
    s.module("norm", &[hidden], false);
}

pub(crate) fn falcon_h1(c: &Config<'_>, s: &Scope<'_>) {
    let hidden = c.size("hidden_size");
    s.tensor("embed_tokens.weight", &[c.size("vocab_size"), hidden]);
    let l = s.each("layers", &c.layers());
    gated(&l.at("feed_forward"), hidden, c.size("intermediate_size"), c.flag("mlp_bias"));
    let mamba = Mamba2 {
        out_bias: c.flag("projectors_bias"),
        has_norm: c.flag("mamba_rms_norm"),
        ..Mamba2::prefixed(c)
    };
    mamba.add(&l.at("mamba"), hidden);
    LLAMA.attention(c, &l.at("self_attn"));
    for norm in ["input_layernorm", "pre_ff_layernorm"] {
        l.module(norm, &[hidden], false);
    }
    s.module("final_layernorm", &[hidden], false);
}

pub(crate) fn mamba2(c: &Config<'_>, s: &Scope<'_>) {
    let hidden = c.size("hidden_size");
    s.tensor("embeddings.weight", &[c.size("vocab_size"), hidden]);
    let l = s.each("layers", &c.layers());
    l.module("norm", &[hidden], false);
    state_space(c, hidden * c.size("expand"), "num_heads", "state_size").add(&l.at("mixer"), hidden);
    s.module("norm_f", &[hidden], false);
}

fn state_space(c: &Config<'_>, inner: Size, heads: &str, state: &str) -> Mamba2 {
    Mamba2 {
        inner,
        heads: c.size(heads),
        groups: c.size("n_groups"),
        state: c.size(state),
        kernel: c.size("conv_kernel"),
        conv_bias: c.flag("use_conv_bias"),
        in_bias: c.flag("use_bias"),
        out_bias: c.flag("use_bias"),
        has_norm: true,
    }
}

pub(crate) fn mamba(c: &Config<'_>, s: &Scope<'_>) {
    let hidden = c.size("hidden_size");
    let inner = c.number("intermediate_size").unwrap_or(hidden * c.number("expand").unwrap_or(Size(2)));
    let (state, rank) =
        (c.size("state_size"), c.number("time_step_rank").unwrap_or(hidden.div_ceil(Size(16))));
    s.tensor("embeddings.weight", &[c.size("vocab_size"), hidden]);
    let l = s.each("layers", &c.layers());
    l.module("norm", &[hidden], false);
    let m = l.at("mixer");
    m.tensor("A_log", &[inner, state]);
    m.tensor("D", &[inner]);
    m.module("conv1d", &[inner, Size(1), c.size("conv_kernel")], c.flag("use_conv_bias"));
    m.linear("in_proj", [inner * 2, hidden], c.flag("use_bias"));
    m.linear("x_proj", [rank + state * 2, inner], false);
    m.linear("dt_proj", [inner, rank], true);
    m.linear("out_proj", [hidden, inner], c.flag("use_bias"));
    s.module("norm_f", &[hidden], false);
}

/// Kind of a layer of Nemotron-H.
fn nemotron_kinds(c: &Config<'_>) -> Vec<&'static str> {
    let kind = |kind: &str| match kind {
        "full_attention" | "attention" | "*" => "full_attention",
        "linear_attention" | "mamba" | "M" => "linear_attention",
        "moe" | "E" => "moe",
        _ => "mlp",
    };
    let pattern = c.written("hybrid_override_pattern").and_then(serde_json::Value::as_str);
    match (c.texts("layers_block_type"), pattern) {
        (Some(kinds), _) if c.written("layers_block_type").is_some() || pattern.is_none() => {
            kinds.into_iter().map(kind).collect()
        }
        (_, Some(pattern)) => pattern.split("").filter(|part| !part.is_empty()).map(kind).collect(),
        // The class computes these.
        _ => vec!["linear_attention", "moe", "full_attention", "mlp"],
    }
}

pub(crate) fn nemotron_h(c: &Config<'_>, s: &Scope<'_>) {
    let hidden = c.size("hidden_size");
    let kinds = nemotron_kinds(c);
    let all = Indices::below(kinds.len() as u64);
    let of = |kind: &str| {
        let layers = all.filter(|layer| kinds.get(layer as usize).is_some_and(|found| *found == kind));
        s.each("layers", &layers).at("mixer")
    };
    s.tensor("embeddings.weight", &[c.size("vocab_size"), hidden]);
    s.each("layers", &all).module("norm", &[hidden], false);
    let inner = c.size("mamba_num_heads") * c.size("mamba_head_dim");
    state_space(c, inner, "mamba_num_heads", "ssm_state_size").add(&of("linear_attention"), hidden);
    LLAMA.attention(c, &of("full_attention"));
    let bias = c.flag("mlp_bias");
    let plain = |m: &Scope<'_>, inner: Size| {
        m.linear("up_proj", [inner, hidden], bias);
        m.linear("down_proj", [hidden, inner], bias);
    };
    plain(&of("mlp"), c.size("intermediate_size"));
    let m = of("moe");
    let (count, inner) = (Size(c.count("n_routed_experts")), c.size("moe_intermediate_size"));
    let latent = c.number("moe_latent_size");
    let width = latent.unwrap_or(hidden);
    m.stacked("experts.up_proj", &[count, inner, width]);
    m.stacked("experts.down_proj", &[count, width, inner]);
    m.tensor("gate.weight", &[count, hidden]);
    m.tensor("gate.e_score_correction_bias", &[count]);
    plain(&m.at("shared_experts"), c.size("moe_shared_expert_intermediate_size"));
    if let Some(latent) = latent {
        m.linear("fc1_latent_proj", [latent, hidden], bias);
        m.linear("fc2_latent_proj", [hidden, latent], bias);
    }
    s.module("norm_f", &[hidden], false);
}

const LFM2: Decoder = Decoder {
    projections: Projections::Four("out_proj"),
    qkv_bias: Bias::No,
    out_bias: Bias::No,
    head_norms: HeadNorms::Head("q_layernorm", "k_layernorm"),
    norms: &["operator_norm", "ffn_norm"],
    ..LLAMA
};

/// Adds all of an LFM2 model but its feed-forward networks.
fn lfm2_frame(c: &Config<'_>, s: &Scope<'_>) {
    let (hidden, bias) = (c.size("hidden_size"), c.flag("conv_bias"));
    s.tensor("embed_tokens.weight", &[c.size("vocab_size"), hidden]);
    let attended = c.numbers("full_attn_idxs");
    let (full, conv) = attention_layers(c, "layer_types", |layer| {
        attended.as_ref().is_none_or(|layers| layers.contains(&u64::from(layer)))
    });
    LFM2.attention(c, &s.each("layers", &full).at("self_attn"));
    let v = s.each("layers", &conv).at("conv");
    v.module("conv", &[hidden, Size(1), c.size("conv_L_cache")], bias);
    v.linear("in_proj", [hidden * 3, hidden], bias);
    v.linear("out_proj", [hidden, hidden], bias);
    LFM2.norms(c, &s.each("layers", &c.layers()));
    s.module("embedding_norm", &[hidden], false);
}

fn lfm2_mlp(m: &Scope<'_>, hidden: Size, inner: Size) {
    m.linear("w1", [inner, hidden], false);
    m.linear("w3", [inner, hidden], false);
    m.linear("w2", [hidden, inner], false);
}

pub(crate) fn lfm2(c: &Config<'_>, s: &Scope<'_>) {
    lfm2_frame(c, s);
    let inner = c.written("block_ff_dim").and_then(serde_json::Value::as_u64).map(Size);
    let mut inner = inner.unwrap_or_else(|| c.size("intermediate_size"));
    if c.flag("block_auto_adjust_ff_dim") {
        inner = inner * 2 / 3;
        if let Some(factor) = c.value("block_ffn_dim_multiplier").and_then(serde_json::Value::as_f64) {
            let multiple = c.size("block_multiple_of");
            inner = (scaled(inner, factor) + multiple - 1) / multiple * multiple;
        }
    }
    lfm2_mlp(&s.each("layers", &c.layers()).at("feed_forward"), c.size("hidden_size"), inner);
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "as int() does"
)]
fn scaled(size: Size, factor: f64) -> Size {
    Size((size.0 as f64 * factor) as u64)
}

pub(crate) fn lfm2_moe(c: &Config<'_>, s: &Scope<'_>) {
    lfm2_frame(c, s);
    let (hidden, count) = (c.size("hidden_size"), Size(c.count("num_experts")));
    let dense_count = c.number("num_dense_layers").unwrap_or_default();
    let (dense, sparse) = c.layers().partition(|layer| u64::from(layer) < dense_count.0);
    lfm2_mlp(&s.each("layers", &dense).at("feed_forward"), hidden, c.size("intermediate_size"));
    let (f, inner) = (s.each("layers", &sparse).at("feed_forward"), c.size("moe_intermediate_size"));
    if c.flag("use_expert_bias") {
        f.tensor("expert_bias", &[count]);
    }
    f.stacked("experts.gate_up_proj", &[count, inner * 2, hidden]);
    f.stacked("experts.down_proj", &[count, hidden, inner]);
    f.tensor("gate.weight", &[count, hidden]);
}
