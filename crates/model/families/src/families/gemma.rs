//! Gemma 1 to 4. Gemma 3n and 4 have layers that share keys and values, and inputs for each layer.

use serde_json::Value;

use crate::config::Config;
use crate::decoder::{Decoder, HeadNorms, LLAMA};
use crate::family::{Family, Row, built, family};
use crate::indices::Indices;
use crate::parts::{Dims, gated};
use crate::size::Size;
use crate::tree::Scope;

pub(super) const ROWS: &[Row] = &[
    (&["gemma"], family(&LLAMA, &[])),
    (&["gemma2"], family(&GEMMA2, &[])),
    (&["gemma3_text"], family(&GEMMA3, &[])),
    (&["gemma3n_text"], built(gemma3n, &[])),
    (&["gemma4_text"], Family { flags: &["enable_moe_block"], ..built(gemma4, &[]) }),
];

const NORMS: &[&str] = &[
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
];

const GEMMA2: Decoder = Decoder { norms: NORMS, ..LLAMA };

const GEMMA3: Decoder = Decoder { head_norms: HeadNorms::QK, ..GEMMA2 };

/// First layer whose keys and values come from another one.
fn first_shared(c: &Config<'_>) -> u32 {
    let own = c.size("num_hidden_layers") - c.number("num_kv_shared_layers").unwrap_or_default();
    u32::try_from(own.0).unwrap_or(u32::MAX)
}

/// Adds an attention. The upper layers need no keys and values, though published files have them.
fn attention(c: &Config<'_>, a: &Scope<'_>, [head, kv]: [Size; 2], has_values: bool, is_shared: bool) {
    let Dims { hidden, heads, .. } = Dims::of(c);
    let bias = c.flag("attention_bias");
    a.linear("q_proj", [heads * head, hidden], bias);
    a.module("q_norm", &[head], false);
    a.linear("o_proj", [hidden, heads * head], bias);
    if is_shared {
        for name in ["k_proj", "v_proj"] {
            a.optional(&format!("{name}.weight"), &[kv * head, hidden]);
        }
        return a.optional("k_norm.weight", &[head]);
    }
    a.linear("k_proj", [kv * head, hidden], bias);
    if has_values {
        a.linear("v_proj", [kv * head, hidden], bias);
    }
    a.module("k_norm", &[head], false);
}

/// Adds the table of inputs for each layer.
fn layer_inputs(c: &Config<'_>, s: &Scope<'_>, width: Size) {
    let all = c.size("num_hidden_layers") * width;
    s.tensor("embed_tokens_per_layer.weight", &[c.size("vocab_size_per_layer_input"), all]);
    s.linear("per_layer_model_projection", [all, c.size("hidden_size")], false);
    s.module("per_layer_projection_norm", &[width], false);
}

fn layer_input_gates(l: &Scope<'_>, hidden: Size, width: Size) {
    l.linear("per_layer_input_gate", [width, hidden], false);
    l.linear("per_layer_projection", [hidden, width], false);
    l.module("post_per_layer_input_norm", &[hidden], false);
}

/// Adds the embedding, the norms of the layers, and the last norm.
fn frame(decoder: &Decoder, c: &Config<'_>, s: &Scope<'_>) {
    s.tensor("embed_tokens.weight", &[c.size("vocab_size"), c.size("hidden_size")]);
    decoder.norms(c, &s.each("layers", &c.layers()));
    s.module("norm", &[c.size("hidden_size")], false);
}

fn gemma3n(c: &Config<'_>, s: &Scope<'_>) {
    frame(&GEMMA2, c, s);
    let Dims { hidden, kv, head, .. } = Dims::of(c);
    let first = first_shared(c);
    let (shared, own) = c.layers().partition(|layer| layer >= first);
    for (layers, is_shared) in [(own, false), (shared, true)] {
        attention(c, &s.each("layers", &layers).at("self_attn"), [head, kv], true, is_shared);
    }
    let widths = c.numbers("intermediate_size");
    for layer in c.layers().iter() {
        let listed = widths.as_ref().and_then(|widths| widths.get(layer as usize).copied()).map(Size);
        let inner = listed.unwrap_or_else(|| c.size("intermediate_size"));
        gated(&s.each("layers", &Indices::one(layer)).at("mlp"), hidden, inner, false);
    }
    let l = s.each("layers", &c.layers());
    let inputs = c.size("altup_num_inputs");
    let a = l.at("altup");
    if c.flag("altup_correct_scale") || c.value("altup_correct_scale").is_none() {
        a.tensor("correct_output_scale", &[hidden]);
    }
    a.linear("correction_coefs", [inputs, inputs], false);
    a.linear("prediction_coefs", [inputs * inputs, inputs], false);
    a.linear("modality_router", [inputs, hidden], false);
    a.module("router_norm", &[hidden], false);
    let (u, rank) = (l.at("laurel"), c.size("laurel_rank"));
    u.linear("linear_left", [rank, hidden], false);
    u.linear("linear_right", [hidden, rank], false);
    u.module("post_laurel_norm", &[hidden], false);
    let width = c.size("hidden_size_per_layer_input");
    layer_input_gates(&l, hidden, width);
    layer_inputs(c, s, width);
    for list in ["altup_projections", "altup_unembed_projections"] {
        s.each(list, &Indices::below((inputs - 1).0)).module("", &[hidden, hidden], false);
    }
}

/// Returns the value that a configuration gives for one layer.
fn of_layer(c: &Config<'_>, layer: u32, key: &str) -> Option<Size> {
    let layers = c.value("per_layer_config")?;
    let layer = layers.get(layer.to_string()).or_else(|| layers.get(layer as usize))?;
    layer.get(key).and_then(Value::as_u64).map(Size)
}

fn gemma4(c: &Config<'_>, s: &Scope<'_>) {
    frame(&GEMMA2, c, s);
    let Dims { hidden, kv, head, .. } = Dims::of(c);
    let (first, count) = (first_shared(c), c.layers().len());
    let types = c.texts("layer_types");
    let is_full = |layer: u32| match &types {
        _ if (layer as usize).saturating_add(1) == count => true,
        Some(types) => types.get(layer as usize).is_some_and(|kind| *kind == "full_attention"),
        None => layer.saturating_add(1).is_multiple_of(6),
    };
    let inner = c.size("intermediate_size");
    for layer in c.layers().iter() {
        let l = s.each("layers", &Indices::one(layer));
        let (is_shared, is_full) = (layer >= first, is_full(layer));
        let same_values = c.flag("attention_k_eq_v") && is_full;
        let (mut head, mut kv) = (head, kv);
        if is_full && c.value("per_layer_config").is_none() {
            head = c.number("global_head_dim").unwrap_or(Size(512));
            if c.flag("attention_k_eq_v") {
                kv = c.number("num_global_key_value_heads").unwrap_or(kv);
            }
        }
        let head = of_layer(c, layer, "head_dim").unwrap_or(head);
        let kv = of_layer(c, layer, "num_key_value_heads").unwrap_or(kv);
        attention(c, &l.at("self_attn"), [head, kv], !same_values, is_shared);
        let double = if is_shared && c.flag("use_double_wide_mlp") { 2 } else { 1 };
        gated(&l.at("mlp"), hidden, inner * double, false);
    }
    let l = s.each("layers", &c.layers());
    l.tensor("layer_scalar", &[Size(1)]);
    if let Some(width) = c.number("hidden_size_per_layer_input").filter(|width| width.0 > 0) {
        layer_input_gates(&l, hidden, width);
        layer_inputs(c, s, width);
    }
    if c.flag("enable_moe_block") {
        let (count, inner) = (Size(c.count("num_experts")), c.size("moe_intermediate_size"));
        l.tensor("router.scale", &[hidden]);
        l.tensor("router.per_expert_scale", &[count]);
        l.tensor("router.proj.weight", &[count, hidden]);
        l.stacked("experts.gate_up_proj", &[count, inner * 2, hidden]);
        l.stacked("experts.down_proj", &[count, hidden, inner]);
        for norm in
            ["post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"]
        {
            l.module(norm, &[hidden], false);
        }
    }
}
