//! `StarCoder` 2: layer norms, and a feed-forward layer without a gate.

use crate::decoder::{Bias, Decoder, LLAMA, Mlp};
use crate::family::{Row, family};

pub(super) const ROWS: &[Row] = &[(&["starcoder2"], family(&STARCODER2, &[]))];

const STARCODER2: Decoder = Decoder {
    qkv_bias: Bias::Key("use_bias"),
    out_bias: Bias::Key("use_bias"),
    mlp: Mlp::Plain("c_fc", "c_proj", Bias::Key("use_bias")),
    norm_bias: Bias::Yes,
    ..LLAMA
};
