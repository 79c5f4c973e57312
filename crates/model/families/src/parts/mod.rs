//! Parts that several families share.

pub(crate) mod fairseq;
pub(crate) mod mamba2;
pub(crate) mod towers;

use crate::config::Config;
use crate::indices::Indices;
use crate::size::Size;
use crate::tree::Scope;

/// Dimensions of an attention.
pub(crate) struct Dims {
    pub(crate) hidden: Size,
    pub(crate) heads: Size,
    /// Heads of keys and values.
    pub(crate) kv: Size,
    /// Width of a head.
    pub(crate) head: Size,
}

impl Dims {
    pub(crate) fn of(c: &Config<'_>) -> Self {
        let (hidden, heads) = (c.size("hidden_size"), c.size("num_attention_heads"));
        let kv = c.number("num_key_value_heads").unwrap_or(heads);
        let head = c.number("head_dim").unwrap_or(hidden / heads);
        Self { hidden, heads, kv, head }
    }
}

/// Adds a gated feed-forward network.
pub(crate) fn gated(m: &Scope<'_>, hidden: Size, inner: Size, bias: bool) {
    m.linear("gate_proj", [inner, hidden], bias);
    m.linear("up_proj", [inner, hidden], bias);
    m.linear("down_proj", [hidden, inner], bias);
}

/// Adds an attention whose keys and values share a narrow tensor.
pub(crate) fn low_rank_attention(c: &Config<'_>, a: &Scope<'_>) {
    let Dims { hidden, heads, .. } = Dims::of(c);
    let bias = c.flag("attention_bias");
    let (nope, rope) = (c.size("qk_nope_head_dim"), c.size("qk_rope_head_dim"));
    let (kv_rank, value) = (c.size("kv_lora_rank"), c.size("v_head_dim"));
    match c.number("q_lora_rank") {
        Some(rank) => {
            a.linear("q_a_proj", [rank, hidden], bias);
            a.module("q_a_layernorm", &[rank], false);
            a.linear("q_b_proj", [heads * (nope + rope), rank], false);
        }
        None => a.linear("q_proj", [heads * (nope + rope), hidden], false),
    }
    a.linear("kv_a_proj_with_mqa", [kv_rank + rope, hidden], bias);
    a.module("kv_a_layernorm", &[kv_rank], false);
    a.linear("kv_b_proj", [heads * (nope + value), kv_rank], false);
    a.linear("o_proj", [hidden, heads * value], bias);
}

/// Adds norms of this width.
pub(crate) fn norms(l: &Scope<'_>, hidden: Size, names: &[&str], bias: bool) {
    for norm in names {
        l.module(norm, &[hidden], bias);
    }
}

/// Adds linear layers of this shape.
pub(crate) fn linears(l: &Scope<'_>, names: &[&str], shape: [Size; 2], bias: bool) {
    for name in names {
        l.linear(name, shape, bias);
    }
}

/// Returns the layers of attention, and the others. Older files name the kinds otherwise.
pub(crate) fn attention_layers(
    c: &Config<'_>,
    key: &str,
    default: impl Fn(u32) -> bool,
) -> (Indices, Indices) {
    let types = c.texts(key);
    c.layers().partition(|layer| match &types {
        Some(types) => types
            .get(layer as usize)
            .is_some_and(|kind| matches!(*kind, "full_attention" | "attention" | "sliding_attention")),
        None => default(layer),
    })
}
