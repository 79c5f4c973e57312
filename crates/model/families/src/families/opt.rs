//! OPT: a decoder with learned positions and layer norms.

use crate::config::Config;
use crate::family::{Family, Row, built};
use crate::parts::norms;
use crate::rule::{Rule, rename};
use crate::tree::Scope;

pub(super) const ROWS: &[Row] =
    &[(&["opt"], Family { embedding: "decoder.embed_tokens.weight", bare: BARE, ..built(opt, &[]) })];

const BARE: &[Rule] = &[rename("^model.", &[""])];

fn opt(c: &Config<'_>, s: &Scope<'_>) {
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
        norms(&l, hidden, &["self_attn_layer_norm", "final_layer_norm"], true);
        let is_removed = c.written("_remove_final_layer_norm").and_then(serde_json::Value::as_bool);
        if c.flag("do_layer_norm_before") && is_removed != Some(true) {
            norms(&d, hidden, &["final_layer_norm"], true);
        }
    }
}
