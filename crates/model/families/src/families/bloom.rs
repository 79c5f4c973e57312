//! BLOOM: fused queries, keys and values, and a norm of the embeddings.

use crate::config::Config;
use crate::family::{Family, Row, built};
use crate::parts::norms;
use crate::rule::BARE_TRANSFORMER;
use crate::tree::Scope;

pub(super) const ROWS: &[Row] = &[(
    &["bloom"],
    Family {
        prefix: "transformer",
        embedding: "word_embeddings.weight",
        bare: BARE_TRANSFORMER,
        ..built(bloom, &[])
    },
)];

fn bloom(c: &Config<'_>, s: &Scope<'_>) {
    let hidden = c.size("hidden_size");
    s.tensor("word_embeddings.weight", &[c.size("vocab_size"), hidden]);
    norms(s, hidden, &["word_embeddings_layernorm", "ln_f"], true);
    let h = s.each("h", &c.layers());
    norms(&h, hidden, &["input_layernorm", "post_attention_layernorm"], true);
    h.linear("self_attention.query_key_value", [hidden * 3, hidden], true);
    h.linear("self_attention.dense", [hidden, hidden], true);
    h.linear("mlp.dense_h_to_4h", [hidden * 4, hidden], true);
    h.linear("mlp.dense_4h_to_h", [hidden, hidden * 4], true);
}
