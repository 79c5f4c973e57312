//! Falcon, and Falcon-H1 with state spaces next to attention.

use crate::config::Config;
use crate::decoder::LLAMA;
use crate::family::{Family, Row, built};
use crate::parts::mamba2::Mamba2;
use crate::parts::{gated, norms};
use crate::size::Size;
use crate::tree::Scope;

pub(super) const ROWS: &[Row] = &[
    (
        &["falcon"],
        Family { prefix: "transformer", embedding: "word_embeddings.weight", ..built(falcon, &[]) },
    ),
    (&["falcon_h1"], built(falcon_h1, &[])),
];

fn falcon(c: &Config<'_>, s: &Scope<'_>) {
    let (hidden, heads) = (c.size("hidden_size"), c.size("num_attention_heads"));
    let (head, inner) = (hidden / heads, c.number("ffn_hidden_size").unwrap_or(hidden * 4));
    let is_new = c.flag("new_decoder_architecture");
    let joined = match (is_new, c.flag("multi_query")) {
        (true, _) => (c.number("num_kv_heads").unwrap_or(heads) * 2 + heads) * head,
        (false, true) => hidden + head * 2,
        (false, false) => hidden * 3,
    };
    let two_norms = c.number("num_ln_in_parallel_attn").map_or(is_new, |count| count == Size(2));
    s.tensor("word_embeddings.weight", &[c.size("vocab_size"), hidden]);
    let h = s.each("h", &c.layers());
    h.linear("self_attention.query_key_value", [joined, hidden], c.flag("bias"));
    h.linear("self_attention.dense", [hidden, hidden], c.flag("bias"));
    h.linear("mlp.dense_h_to_4h", [inner, hidden], c.flag("bias"));
    h.linear("mlp.dense_4h_to_h", [hidden, inner], c.flag("bias"));
    let names: &[&str] = match (c.flag("parallel_attn"), two_norms) {
        (false, _) => &["post_attention_layernorm", "input_layernorm"],
        (true, true) => &["ln_attn", "ln_mlp"],
        (true, false) => &["input_layernorm"],
    };
    norms(&h, hidden, names, true);
    norms(s, hidden, &["ln_f"], true);
}

fn falcon_h1(c: &Config<'_>, s: &Scope<'_>) {
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
