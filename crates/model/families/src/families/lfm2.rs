//! LFM 2: attention, convolutions and experts.

use crate::config::Config;
use crate::decoder::{Bias, Decoder, HeadNorms, LLAMA, Projections};
use crate::family::{Row, built};
use crate::parts::attention_layers;
use crate::rule::NUMBERED_W;
use crate::size::Size;
use crate::tree::Scope;

pub(super) const ROWS: &[Row] =
    &[(&["lfm2"], built(lfm2, &[])), (&["lfm2_moe"], built(lfm2_moe, NUMBERED_W))];

const LFM2: Decoder = Decoder {
    projections: Projections::Four("out_proj"),
    qkv_bias: Bias::No,
    out_bias: Bias::No,
    head_norms: HeadNorms::Head("q_layernorm", "k_layernorm"),
    norms: &["operator_norm", "ffn_norm"],
    ..LLAMA
};

/// Adds all of an LFM2 model but its feed-forward networks.
fn frame(c: &Config<'_>, s: &Scope<'_>) {
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

fn mlp(m: &Scope<'_>, hidden: Size, inner: Size) {
    m.linear("w1", [inner, hidden], false);
    m.linear("w3", [inner, hidden], false);
    m.linear("w2", [hidden, inner], false);
}

fn lfm2(c: &Config<'_>, s: &Scope<'_>) {
    frame(c, s);
    let inner = c.written("block_ff_dim").and_then(serde_json::Value::as_u64).map(Size);
    let mut inner = inner.unwrap_or_else(|| c.size("intermediate_size"));
    if c.flag("block_auto_adjust_ff_dim") {
        inner = inner * 2 / 3;
        if let Some(factor) = c.value("block_ffn_dim_multiplier").and_then(serde_json::Value::as_f64) {
            let multiple = c.size("block_multiple_of");
            inner = (scaled(inner, factor) + multiple - 1) / multiple * multiple;
        }
    }
    mlp(&s.each("layers", &c.layers()).at("feed_forward"), c.size("hidden_size"), inner);
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

fn lfm2_moe(c: &Config<'_>, s: &Scope<'_>) {
    frame(c, s);
    let (hidden, count) = (c.size("hidden_size"), Size(c.count("num_experts")));
    let dense_count = c.number("num_dense_layers").unwrap_or_default();
    let (dense, sparse) = c.layers().partition(|layer| u64::from(layer) < dense_count.0);
    mlp(&s.each("layers", &dense).at("feed_forward"), hidden, c.size("intermediate_size"));
    let (f, inner) = (s.each("layers", &sparse).at("feed_forward"), c.size("moe_intermediate_size"));
    if c.flag("use_expert_bias") {
        f.tensor("expert_bias", &[count]);
    }
    f.stacked("experts.gate_up_proj", &[count, inner * 2, hidden]);
    f.stacked("experts.down_proj", &[count, hidden, inner]);
    f.tensor("gate.weight", &[count, hidden]);
}
