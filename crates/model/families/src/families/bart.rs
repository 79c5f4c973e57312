//! BART: an encoder and a decoder with learned positions.

use crate::config::Config;
use crate::family::{Family, Row, built};
use crate::indices::Indices;
use crate::parts::{fairseq, norms};
use crate::tree::Scope;

pub(super) const ROWS: &[Row] = &[(&["bart"], Family { embedding: "shared.weight", ..built(bart, &[]) })];

fn bart(c: &Config<'_>, s: &Scope<'_>) {
    let (hidden, vocab) = (c.size("d_model"), c.size("vocab_size"));
    s.tensor("shared.weight", &[vocab, hidden]);
    for (part, has_cross) in [("encoder", false), ("decoder", true)] {
        let p = s.at(part);
        p.tensor("embed_tokens.weight", &[vocab, hidden]);
        p.tensor("embed_positions.weight", &[c.size("max_position_embeddings") + 2, hidden]);
        let layers = Indices::below(c.count(&format!("{part}_layers")));
        fairseq::layers(&p, &layers, [hidden, c.size(&format!("{part}_ffn_dim"))], has_cross, true);
        norms(&p, hidden, &["layernorm_embedding"], true);
    }
}
