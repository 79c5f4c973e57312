//! GLM 4, dense and with experts.

use crate::config::Config;
use crate::decoder::{Bias, Decoder, ExpertLayer, HeadNorms, LLAMA, Mlp, Projections};
use crate::families::deepseek::SCORED_EXPERTS;
use crate::family::{Family, Row, family};
use crate::rule::NUMBERED;

pub(super) const ROWS: &[Row] = &[
    (&["glm"], family(&GLM, &[])),
    (&["glm4"], family(&GLM4, &[])),
    (&["glm4_moe"], Family { flags: &["use_qk_norm"], ..family(&GLM4_MOE, NUMBERED) }),
    (&["glm4_moe_lite"], family(&GLM4_MOE_LITE, NUMBERED)),
];

const NORMS: &[&str] =
    &["input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm"];

const GLM: Decoder = Decoder { out_bias: Bias::No, mlp: Mlp::GatedJoined, ..LLAMA };

const GLM4: Decoder = Decoder { norms: NORMS, ..GLM };

const GLM4_MOE: Decoder = Decoder {
    out_bias: Bias::No,
    head_norms: HeadNorms::HeadIf("use_qk_norm"),
    experts: Some(SCORED_EXPERTS),
    ..LLAMA
};

const GLM4_MOE_LITE: Decoder = Decoder {
    projections: Projections::LowRank,
    experts: Some(ExpertLayer { sparse: listed, ..SCORED_EXPERTS }),
    ..LLAMA
};

/// A layer beyond the list is that of an MTP head.
fn listed(c: &Config<'_>, layer: u32) -> bool {
    match c.texts("mlp_layer_types") {
        Some(types) => types.get(layer as usize).is_none_or(|kind| *kind == "sparse"),
        None => layer > 0,
    }
}
