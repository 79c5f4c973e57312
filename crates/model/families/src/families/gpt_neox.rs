//! GPT-NeoX and Pythia: fused queries, keys and values.

use crate::config::Config;
use crate::family::{Family, Row, built};
use crate::parts::norms;
use crate::rule::{Rule, rename};
use crate::tree::Scope;

pub(super) const ROWS: &[Row] = &[(
    &["gpt_neox"],
    Family {
        prefix: "gpt_neox",
        embedding: "embed_in.weight",
        unread: &[".attention.bias", ".attention.masked_bias", ".attention.rotary_emb.inv_freq"],
        ..built(gpt_neox, RULES)
    },
)];

const RULES: &[Rule] = &[rename("^lm_head.", &["embed_out."])];

fn gpt_neox(c: &Config<'_>, s: &Scope<'_>) {
    let (hidden, inner) = (c.size("hidden_size"), c.size("intermediate_size"));
    s.tensor("embed_in.weight", &[c.size("vocab_size"), hidden]);
    let l = s.each("layers", &c.layers());
    norms(&l, hidden, &["input_layernorm", "post_attention_layernorm"], true);
    l.linear("attention.query_key_value", [hidden * 3, hidden], c.flag("attention_bias"));
    l.linear("attention.dense", [hidden, hidden], c.flag("attention_bias"));
    l.linear("mlp.dense_h_to_4h", [inner, hidden], true);
    l.linear("mlp.dense_4h_to_h", [hidden, inner], true);
    norms(s, hidden, &["final_layer_norm"], true);
}
