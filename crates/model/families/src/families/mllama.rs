//! The text model of Llama 3.2.

use crate::config::Config;
use crate::decoder::LLAMA;
use crate::parts::{Dims, gated};
use crate::size::Size;
use crate::tree::Scope;

/// Adds the text model of Llama 3.2, some of whose layers look at images.
pub(super) fn text(c: &Config<'_>, s: &Scope<'_>) {
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
