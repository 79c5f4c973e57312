//! Whisper: an encoder of sounds and a decoder.

use crate::config::Config;
use crate::family::{Family, Row, built};
use crate::indices::Indices;
use crate::parts::{fairseq, norms};
use crate::size::Size;
use crate::tree::Scope;

pub(super) const ROWS: &[Row] = &[(
    &["whisper"],
    Family { embedding: "decoder.embed_tokens.weight", head: "proj_out", ..built(whisper, &[]) },
)];

fn whisper(c: &Config<'_>, s: &Scope<'_>) {
    let hidden = c.size("d_model");
    let (e, d) = (s.at("encoder"), s.at("decoder"));
    e.module("conv1", &[hidden, c.size("num_mel_bins"), Size(3)], true);
    e.module("conv2", &[hidden, hidden, Size(3)], true);
    e.tensor("embed_positions.weight", &[c.size("max_source_positions"), hidden]);
    let layers = |key: &str| Indices::below(c.count(key));
    fairseq::layers(&e, &layers("encoder_layers"), [hidden, c.size("encoder_ffn_dim")], false, false);
    norms(&e, hidden, &["layer_norm"], true);
    d.tensor("embed_tokens.weight", &[c.size("vocab_size"), hidden]);
    d.tensor("embed_positions.weight", &[c.size("max_target_positions"), hidden]);
    fairseq::layers(&d, &layers("decoder_layers"), [hidden, c.size("decoder_ffn_dim")], true, false);
    norms(&d, hidden, &["layer_norm"], true);
}
