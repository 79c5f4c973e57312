//! Qwen 2 to 3.5: dense, with experts, and with linear attention.

use crate::config::Config;
use crate::decoder::{Bias, Decoder, EXPERTS, ExpertLayer, HeadNorms, LLAMA, Shared};
use crate::family::{Family, Row, built, family};
use crate::indices::Indices;
use crate::parts::{Dims, attention_layers};
use crate::rule::NUMBERED;
use crate::size::Size;
use crate::tree::Scope;

pub(super) const ROWS: &[Row] = &[
    (&["qwen2", "qwen2_vl_text", "qwen2_5_vl_text"], family(&QWEN2, &[])),
    (&["qwen3", "qwen3_vl_text"], family(&QWEN3, &[])),
    (&["qwen2_moe"], family(&QWEN2_MOE, NUMBERED)),
    (&["qwen3_moe"], family(&QWEN3_MOE, NUMBERED)),
    (&["qwen3_vl_moe_text"], family(&QWEN3_MOE, &[])),
    (&["qwen3_next"], Family { unread: MTP, ..built(qwen3_next, NUMBERED) }),
    (&["qwen3_5_text"], Family { unread: MTP, ..built(qwen3_5, &[]) }),
    (&["qwen3_5_moe_text"], Family { unread: MTP, ..built(qwen3_5_moe, NUMBERED) }),
];

/// Heads that predict several tokens, for which transformers has no modules.
const MTP: &[&str] = &["mtp."];

const QWEN2: Decoder = Decoder { qkv_bias: Bias::Yes, out_bias: Bias::No, ..LLAMA };

const QWEN3: Decoder = Decoder { head_norms: HeadNorms::QK, ..LLAMA };

const QWEN_EXPERTS: ExpertLayer =
    ExpertLayer { shared: Shared::Gated("shared_expert_intermediate_size"), sparse: stepped, ..EXPERTS };

const QWEN2_MOE: Decoder = Decoder { qkv_bias: Bias::Key("qkv_bias"), experts: Some(QWEN_EXPERTS), ..QWEN2 };

const QWEN3_MOE: Decoder = Decoder { experts: Some(ExpertLayer { sparse: stepped, ..EXPERTS }), ..QWEN3 };

/// A layer with linear or full attention, which MTP repeats.
const LINEAR: Decoder = Decoder { head_norms: HeadNorms::QK, experts: Some(QWEN_EXPERTS), ..LLAMA };

const LINEAR_DENSE: Decoder = Decoder { experts: None, ..LINEAR };

const LINEAR_SPARSE: Decoder =
    Decoder { experts: Some(ExpertLayer { sparse: |_, _| true, ..QWEN_EXPERTS }), ..LINEAR };

/// `decoder_sparse_step` counts layers from one; `mlp_only_layers` are dense.
fn stepped(c: &Config<'_>, layer: u32) -> bool {
    let step = c.number("decoder_sparse_step").map_or(1, |step| step.0);
    let dense = c.numbers("mlp_only_layers").unwrap_or_default();
    let number = u64::from(layer).saturating_add(1);
    !dense.contains(&u64::from(layer)) && number.is_multiple_of(step) && c.size("num_experts").0 > 0
}

/// Adds the attention of a Qwen model, whose queries have a gate.
fn attention(c: &Config<'_>, a: &Scope<'_>) {
    let Dims { hidden, heads, kv, head } = Dims::of(c);
    let bias = c.flag("attention_bias");
    a.linear("q_proj", [heads * head * 2, hidden], bias);
    a.linear("k_proj", [kv * head, hidden], bias);
    a.linear("v_proj", [kv * head, hidden], bias);
    a.linear("o_proj", [hidden, heads * head], bias);
    a.module("q_norm", &[head], false);
    a.module("k_norm", &[head], false);
}

fn linear(c: &Config<'_>, s: &Scope<'_>, decoder: &Decoder, is_joined: bool) {
    let hidden = c.size("hidden_size");
    s.tensor("embed_tokens.weight", &[c.size("vocab_size"), hidden]);
    let interval = c.number("full_attention_interval").map_or(4, |interval| interval.0);
    let (full, linear) = attention_layers(c, "layer_types", |layer| {
        u64::from(layer).saturating_add(1).is_multiple_of(interval)
    });
    attention(c, &s.each("layers", &full).at("self_attn"));
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

fn qwen3_next(c: &Config<'_>, s: &Scope<'_>) {
    linear(c, s, &LINEAR, true);
}

fn qwen3_5(c: &Config<'_>, s: &Scope<'_>) {
    linear(c, s, &LINEAR_DENSE, false);
}

fn qwen3_5_moe(c: &Config<'_>, s: &Scope<'_>) {
    linear(c, s, &LINEAR_SPARSE, false);
}

/// Adds the heads that predict several tokens ahead.
pub(crate) fn qwen_mtp(c: &Config<'_>, s: &Scope<'_>, layers: u64) {
    let decoder = match c.model_type.as_str() {
        "qwen3_5_text" => LINEAR_DENSE,
        _ => LINEAR_SPARSE,
    };
    let hidden = c.size("hidden_size");
    s.linear("fc", [hidden, hidden * 2], false);
    for norm in ["pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"] {
        s.module(norm, &[hidden], false);
    }
    let layers = Indices::below(layers);
    let l = s.each("layers", &layers);
    attention(c, &l.at("self_attn"));
    decoder.norms(c, &l);
    decoder.feed_forward(c, s, &layers);
}
