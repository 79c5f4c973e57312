//! BERT, `RoBERTa` and `DistilBERT`.

use crate::config::Config;
use crate::family::{Body, Family, Row, built};
use crate::parts::{linears, norms};
use crate::tree::Scope;

pub(super) const ROWS: &[Row] = &[
    (&["bert"], BERT),
    (&["roberta"], Family { prefix: "roberta", ..BERT }),
    (&["distilbert"], Family { prefix: "distilbert", body: Body::Built(distilbert), ..BERT }),
];

const BERT: Family =
    Family { prefix: "bert", embedding: "embeddings.word_embeddings.weight", ..built(bert, &[]) };

fn bert(c: &Config<'_>, s: &Scope<'_>) {
    let (hidden, inner) = (c.size("hidden_size"), c.size("intermediate_size"));
    let e = s.at("embeddings");
    e.tensor("word_embeddings.weight", &[c.size("vocab_size"), hidden]);
    e.tensor("position_embeddings.weight", &[c.size("max_position_embeddings"), hidden]);
    e.tensor("token_type_embeddings.weight", &[c.size("type_vocab_size"), hidden]);
    norms(&e, hidden, &["LayerNorm"], true);
    let l = s.at("encoder").each("layer", &c.layers());
    let attention = |a: &Scope<'_>| {
        linears(a, &["self.query", "self.key", "self.value", "output.dense"], [hidden, hidden], true);
        norms(a, hidden, &["output.LayerNorm"], true);
    };
    attention(&l.at("attention"));
    if c.flag("add_cross_attention") {
        attention(&l.at("crossattention"));
    }
    linears(&l, &["intermediate.dense"], [inner, hidden], true);
    linears(&l, &["output.dense"], [hidden, inner], true);
    norms(&l, hidden, &["output.LayerNorm"], true);
}

fn distilbert(c: &Config<'_>, s: &Scope<'_>) {
    let (hidden, inner) = (c.size("dim"), c.size("hidden_dim"));
    let e = s.at("embeddings");
    e.tensor("word_embeddings.weight", &[c.size("vocab_size"), hidden]);
    e.tensor("position_embeddings.weight", &[c.size("max_position_embeddings"), hidden]);
    norms(&e, hidden, &["LayerNorm"], true);
    let l = s.at("transformer").each("layer", &c.layers());
    linears(&l.at("attention"), &["q_lin", "k_lin", "v_lin", "out_lin"], [hidden, hidden], true);
    linears(&l, &["ffn.lin1"], [inner, hidden], true);
    linears(&l, &["ffn.lin2"], [hidden, inner], true);
    norms(&l, hidden, &["sa_layer_norm", "output_layer_norm"], true);
}
