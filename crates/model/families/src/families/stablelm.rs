//! `StableLM`: layer norms, and norms of each head.

use crate::decoder::{Bias, Decoder, HeadNorms, LLAMA, NORMS};
use crate::family::{Family, Row, family};

pub(super) const ROWS: &[Row] =
    &[(&["stablelm"], Family { flags: &["qk_layernorm"], ..family(&STABLELM, &[]) })];

const STABLELM: Decoder = Decoder {
    qkv_bias: Bias::Key("use_qkv_bias"),
    out_bias: Bias::No,
    head_norms: HeadNorms::Modules("qk_layernorm"),
    norms: NORMS,
    norm_bias: Bias::Yes,
    ..LLAMA
};
