//! Apertus: a feed-forward layer without a gate, whose activation has numbers of its own.

use crate::decoder::{Decoder, HeadNorms, LLAMA, Mlp};
use crate::family::{Row, family};

pub(super) const ROWS: &[Row] = &[(&["apertus"], family(&APERTUS, &[]))];

const APERTUS: Decoder = Decoder {
    head_norms: HeadNorms::QK,
    mlp: Mlp::Xielu,
    norms: &["attention_layernorm", "feedforward_layernorm"],
    ..LLAMA
};
