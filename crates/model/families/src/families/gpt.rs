//! Older decoders, each with names of its own.

use crate::config::Config;
use crate::size::Size;
use crate::tree::Scope;

fn norms(l: &Scope<'_>, hidden: Size, names: &[&str]) {
    for norm in names {
        l.module(norm, &[hidden], true);
    }
}

pub(crate) fn gpt2(c: &Config<'_>, s: &Scope<'_>) {
    let hidden = c.size("n_embd");
    let inner = c.number("n_inner").unwrap_or(hidden * 4);
    s.tensor("wte.weight", &[c.size("vocab_size"), hidden]);
    s.tensor("wpe.weight", &[c.size("n_positions"), hidden]);
    let h = s.each("h", &c.layers()).columns_first();
    norms(&h, hidden, &["ln_1", "ln_2"]);
    let convolution = |name: &str, [input, out]: [Size; 2]| {
        h.tensor(&format!("{name}.weight"), &[input, out]);
        h.tensor(&format!("{name}.bias"), &[out]);
    };
    convolution("attn.c_attn", [hidden, hidden * 3]);
    convolution("attn.c_proj", [hidden, hidden]);
    convolution("mlp.c_fc", [hidden, inner]);
    convolution("mlp.c_proj", [inner, hidden]);
    if c.flag("add_cross_attention") {
        norms(&h, hidden, &["ln_cross_attn"]);
        convolution("crossattention.c_attn", [hidden, hidden * 2]);
        convolution("crossattention.q_attn", [hidden, hidden]);
        convolution("crossattention.c_proj", [hidden, hidden]);
    }
    norms(s, hidden, &["ln_f"]);
}

pub(crate) fn gpt_neox(c: &Config<'_>, s: &Scope<'_>) {
    let (hidden, inner) = (c.size("hidden_size"), c.size("intermediate_size"));
    s.tensor("embed_in.weight", &[c.size("vocab_size"), hidden]);
    let l = s.each("layers", &c.layers());
    norms(&l, hidden, &["input_layernorm", "post_attention_layernorm"]);
    l.linear("attention.query_key_value", [hidden * 3, hidden], c.flag("attention_bias"));
    l.linear("attention.dense", [hidden, hidden], c.flag("attention_bias"));
    l.linear("mlp.dense_h_to_4h", [inner, hidden], true);
    l.linear("mlp.dense_4h_to_h", [hidden, inner], true);
    norms(s, hidden, &["final_layer_norm"]);
}

pub(crate) fn bloom(c: &Config<'_>, s: &Scope<'_>) {
    let hidden = c.size("hidden_size");
    s.tensor("word_embeddings.weight", &[c.size("vocab_size"), hidden]);
    norms(s, hidden, &["word_embeddings_layernorm", "ln_f"]);
    let h = s.each("h", &c.layers());
    norms(&h, hidden, &["input_layernorm", "post_attention_layernorm"]);
    h.linear("self_attention.query_key_value", [hidden * 3, hidden], true);
    h.linear("self_attention.dense", [hidden, hidden], true);
    h.linear("mlp.dense_h_to_4h", [hidden * 4, hidden], true);
    h.linear("mlp.dense_4h_to_h", [hidden, hidden * 4], true);
}

pub(crate) fn falcon(c: &Config<'_>, s: &Scope<'_>) {
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
    norms(&h, hidden, names);
    norms(s, hidden, &["ln_f"]);
}

pub(crate) fn opt(c: &Config<'_>, s: &Scope<'_>) {
    let (hidden, inner) = (c.size("hidden_size"), c.size("ffn_dim"));
    let word = c.number("word_embed_proj_dim").unwrap_or(hidden);
    let (bias, has_norm_weights) = (c.flag("enable_bias"), c.flag("layer_norm_elementwise_affine"));
    let d = s.at("decoder");
    d.tensor("embed_tokens.weight", &[c.size("vocab_size"), word]);
    d.tensor("embed_positions.weight", &[c.size("max_position_embeddings") + 2, hidden]);
    if word != hidden {
        d.linear("project_out", [word, hidden], false);
        d.linear("project_in", [hidden, word], false);
    }
    let l = d.each("layers", &c.layers());
    for name in ["k_proj", "v_proj", "q_proj", "out_proj"] {
        l.at("self_attn").linear(name, [hidden, hidden], bias);
    }
    l.linear("fc1", [inner, hidden], bias);
    l.linear("fc2", [hidden, inner], bias);
    if has_norm_weights {
        norms(&l, hidden, &["self_attn_layer_norm", "final_layer_norm"]);
        let is_removed = c.written("_remove_final_layer_norm").and_then(serde_json::Value::as_bool);
        if c.flag("do_layer_norm_before") && is_removed != Some(true) {
            norms(&d, hidden, &["final_layer_norm"]);
        }
    }
}
