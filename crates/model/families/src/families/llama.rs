//! LLaMA, Llama 3.2 with its layers that look at images, and Llama 4; and the types that have the tensors of LLaMA.

use crate::config::Config;
use crate::decoder::LLAMA;
use crate::family::{Row, built, family};
use crate::parts::{Dims, gated};
use crate::size::Size;
use crate::tree::Scope;

pub(super) const ROWS: &[Row] = &[
    (&["llama", "smollm3"], family(&LLAMA, &[])),
    (&["mllama_text_model"], built(mllama, &[])),
    (&["llama4_text"], built(llama4, &[])),
];

/// Adds the text model of Llama 3.2, some of whose layers look at images.
fn mllama(c: &Config<'_>, s: &Scope<'_>) {
    let Dims { hidden, heads, kv, head } = Dims::of(c);
    let looking = c.numbers("cross_attention_layers").unwrap_or_else(|| vec![3, 8, 13, 18, 23, 28, 33, 38]);
    let (cross, own) = c.layers().partition(|layer| looking.contains(&u64::from(layer)));
    s.tensor("embed_tokens.weight", &[c.size("vocab_size") + 8, hidden]);
    LLAMA.attention(c, &s.each("layers", &own).at("self_attn"));
    let l = s.each("layers", &cross);
    l.tensor("cross_attn_attn_gate", &[Size(1)]);
    l.tensor("cross_attn_mlp_gate", &[Size(1)]);
    let a = l.at("cross_attn");
    a.linear("q_proj", [heads * head, hidden], false);
    a.linear("k_proj", [kv * head, hidden], false);
    a.linear("v_proj", [kv * head, hidden], false);
    a.linear("o_proj", [hidden, heads * head], false);
    a.module("q_norm", &[head], false);
    a.module("k_norm", &[head], false);
    let all = s.each("layers", &c.layers());
    gated(&all.at("mlp"), hidden, c.size("intermediate_size"), false);
    LLAMA.norms(c, &all);
    s.module("norm", &[hidden], false);
}

fn llama4(c: &Config<'_>, s: &Scope<'_>) {
    s.tensor("embed_tokens.weight", &[c.size("vocab_size"), c.size("hidden_size")]);
    let l = s.each("layers", &c.layers());
    LLAMA.attention(c, &l.at("self_attn"));
    LLAMA.norms(c, &l);
    let (hidden, inner) = (c.size("hidden_size"), c.size("intermediate_size"));
    let step = c.number("interleave_moe_layer_step").map_or(1, |step| step.0);
    let listed = c.numbers("moe_layers");
    let (sparse, dense) = c.layers().partition(|layer| match &listed {
        Some(layers) => layers.contains(&u64::from(layer)),
        None => u64::from(layer).saturating_add(1).is_multiple_of(step),
    });
    let f = s.each("layers", &sparse).at("feed_forward");
    let (count, e) = (Size(c.count("num_local_experts")), f.at("experts").columns_first());
    e.stacked("gate_up_proj", &[count, hidden, inner * 2]);
    e.stacked("down_proj", &[count, inner, hidden]);
    f.tensor("router.weight", &[count, hidden]);
    gated(&f.at("shared_expert"), hidden, inner, false);
    if dense.len() > 0 {
        gated(&s.each("layers", &dense).at("feed_forward"), hidden, c.size("intermediate_size_mlp"), false);
    }
    s.module("norm", &[hidden], false);
}
