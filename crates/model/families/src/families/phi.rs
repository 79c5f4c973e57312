//! Phi 1 to 4 and Phi-MoE: with and without gates, and with experts.

use crate::decoder::{Bias, Decoder, ExpertLayer, HeadNorms, LLAMA, LOCAL_EXPERTS, Mlp, Projections};
use crate::family::{Family, Row, family};
use crate::rule::{Rule, SPARSE, W1_W3, W2, rename};

pub(super) const ROWS: &[Row] = &[
    (&["phi"], Family { flags: &["qk_layernorm"], ..family(&PHI, &[]) }),
    (&["phi3"], family(&PHI3, &[])),
    (&["phimoe"], family(&PHIMOE, RULES)),
];

const RULES: &[Rule] = &[W1_W3, W2, rename("mlp.router.", &["mlp.gate."]), SPARSE];

const PHI: Decoder = Decoder {
    projections: Projections::Four("dense"),
    qkv_bias: Bias::Yes,
    out_bias: Bias::Yes,
    head_norms: HeadNorms::Biased("qk_layernorm"),
    mlp: Mlp::Plain("fc1", "fc2", Bias::Yes),
    norms: &["input_layernorm"],
    norm_bias: Bias::Yes,
    last_norm: Some("final_layernorm"),
    ..LLAMA
};

const PHI3: Decoder = Decoder { projections: Projections::Joined, mlp: Mlp::GatedJoined, ..LLAMA };

const PHIMOE: Decoder = Decoder {
    experts: Some(ExpertLayer { router: "router.weight", ..LOCAL_EXPERTS }),
    norm_bias: Bias::Yes,
    ..LLAMA
};
