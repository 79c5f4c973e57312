//! T5: an encoder and a decoder with relative positions.

use crate::config::Config;
use crate::family::{Family, Row, built};
use crate::indices::Indices;
use crate::size::Size;
use crate::tree::Scope;

pub(super) const ROWS: &[Row] =
    &[(&["t5"], Family { prefix: "", embedding: "shared.weight", ..built(t5, &[]) })];

fn t5(c: &Config<'_>, s: &Scope<'_>) {
    let (hidden, heads, inner) = (c.size("d_model"), c.size("num_heads"), c.size("d_ff"));
    let width = heads * c.size("d_kv");
    let is_gated = c.text("feed_forward_proj").starts_with("gated");
    s.tensor("shared.weight", &[c.size("vocab_size"), hidden]);
    let decoder_layers = c.number("num_decoder_layers").unwrap_or_else(|| c.size("num_layers"));
    for (part, count) in [("encoder", Size(c.count("num_layers"))), ("decoder", decoder_layers)] {
        let p = s.at(part);
        p.tensor("embed_tokens.weight", &[c.size("vocab_size"), hidden]);
        let b = p.each("block", &Indices::below(count.0));
        let mut kinds = vec!["SelfAttention", "DenseReluDense"];
        if part == "decoder" {
            kinds.insert(1, "EncDecAttention");
        }
        for (number, kind) in kinds.iter().enumerate() {
            let l = b.at(&format!("layer.{number}"));
            l.module("layer_norm", &[hidden], false);
            let m = l.at(kind);
            if *kind == "DenseReluDense" {
                let names: &[&str] = if is_gated { &["wi_0", "wi_1"] } else { &["wi"] };
                for name in names {
                    m.linear(name, [inner, hidden], false);
                }
                m.linear("wo", [hidden, inner], false);
            } else {
                for name in ["q", "k", "v"] {
                    m.linear(name, [width, hidden], false);
                }
                m.linear("o", [hidden, width], false);
            }
        }
        p.tensor(
            "block.0.layer.0.SelfAttention.relative_attention_bias.weight",
            &[c.size("relative_attention_num_buckets"), heads],
        );
        p.module("final_layer_norm", &[hidden], false);
    }
}
