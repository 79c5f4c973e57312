//! Decoders with experts in all or some layers.

use crate::config::Config;
use crate::decoder::{Bias, Decoder, ExpertLayer, HeadNorms, LLAMA, Projections, Shared};
use crate::families::dense::{ERNIE, OLMO2, QWEN2, QWEN3};

fn always(_: &Config<'_>, _: u32) -> bool {
    true
}

/// `decoder_sparse_step` counts layers from one; `mlp_only_layers` are dense.
fn stepped(c: &Config<'_>, layer: u32) -> bool {
    let step = c.number("decoder_sparse_step").map_or(1, |step| step.0);
    let dense = c.numbers("mlp_only_layers").unwrap_or_default();
    let number = u64::from(layer).saturating_add(1);
    !dense.contains(&u64::from(layer)) && number.is_multiple_of(step) && c.size("num_experts").0 > 0
}

fn after_dense(c: &Config<'_>, layer: u32) -> bool {
    u64::from(layer) >= c.number("first_k_dense_replace").map_or(0, |first| first.0)
}

/// A layer beyond the list is that of an MTP head.
fn listed(c: &Config<'_>, layer: u32) -> bool {
    match c.texts("mlp_layer_types") {
        Some(types) => types.get(layer as usize).is_none_or(|kind| *kind == "sparse"),
        None => layer > 0,
    }
}

fn ernie_layers(c: &Config<'_>, layer: u32) -> bool {
    let number = |key: &str| c.value(key).and_then(serde_json::Value::as_i64);
    let start = number("moe_layer_start_index").unwrap_or_default();
    let end = number("moe_layer_end_index").filter(|end| *end >= 0).unwrap_or(i64::MAX);
    let interval = c.number("moe_layer_interval").map_or(1, |interval| interval.0);
    let number = u64::from(layer).saturating_add(1);
    number.is_multiple_of(interval) && (start..=end).contains(&i64::from(layer))
}

const EXPERTS: ExpertLayer = ExpertLayer {
    at: "mlp",
    count: "num_experts",
    inner: "moe_intermediate_size",
    router: "gate.weight",
    per_expert: &[],
    shared: Shared::None,
    sparse: always,
    is_transposed: false,
};
const MIXTRAL_EXPERTS: ExpertLayer =
    ExpertLayer { count: "num_local_experts", inner: "intermediate_size", ..EXPERTS };
const DEEPSEEK_EXPERTS: ExpertLayer = ExpertLayer {
    count: "n_routed_experts",
    shared: Shared::Several("n_shared_experts"),
    sparse: after_dense,
    ..EXPERTS
};
const SCORED_EXPERTS: ExpertLayer =
    ExpertLayer { per_expert: &["gate.e_score_correction_bias"], ..DEEPSEEK_EXPERTS };
pub(super) const GRANITE_EXPERTS: ExpertLayer = ExpertLayer {
    at: "block_sparse_moe",
    router: "router.weight",
    shared: Shared::Joined("shared_intermediate_size"),
    ..MIXTRAL_EXPERTS
};
pub(super) const QWEN_EXPERTS: ExpertLayer =
    ExpertLayer { shared: Shared::Gated("shared_expert_intermediate_size"), sparse: stepped, ..EXPERTS };

pub(crate) const MIXTRAL: Decoder = Decoder { experts: Some(MIXTRAL_EXPERTS), ..LLAMA };
pub(crate) const QWEN2_MOE: Decoder =
    Decoder { qkv_bias: Bias::Key("qkv_bias"), experts: Some(QWEN_EXPERTS), ..QWEN2 };
pub(crate) const QWEN3_MOE: Decoder =
    Decoder { experts: Some(ExpertLayer { sparse: stepped, ..EXPERTS }), ..QWEN3 };
pub(crate) const PHIMOE: Decoder = Decoder {
    experts: Some(ExpertLayer { router: "router.weight", ..MIXTRAL_EXPERTS }),
    norm_bias: Bias::Yes,
    ..LLAMA
};
pub(crate) const GRANITEMOE: Decoder = Decoder { experts: Some(GRANITE_EXPERTS), ..LLAMA };
pub(crate) const OLMOE: Decoder = Decoder {
    experts: Some(ExpertLayer { inner: "intermediate_size", ..EXPERTS }),
    norms: crate::decoder::NORMS,
    ..OLMO2
};
pub(crate) const GPT_OSS: Decoder = Decoder {
    per_head: &["sinks"],
    experts: Some(ExpertLayer {
        router: "router.weight",
        per_expert: &["router.bias"],
        is_transposed: true,
        ..MIXTRAL_EXPERTS
    }),
    ..LLAMA
};
pub(crate) const GLM4_MOE: Decoder = Decoder {
    out_bias: Bias::No,
    head_norms: HeadNorms::HeadIf("use_qk_norm"),
    experts: Some(SCORED_EXPERTS),
    ..LLAMA
};
pub(crate) const GLM4_MOE_LITE: Decoder = Decoder {
    projections: Projections::LowRank,
    experts: Some(ExpertLayer { sparse: listed, ..SCORED_EXPERTS }),
    ..LLAMA
};
pub(crate) const DEEPSEEK_V2: Decoder =
    Decoder { projections: Projections::LowRank, experts: Some(DEEPSEEK_EXPERTS), ..LLAMA };
pub(crate) const DEEPSEEK_V3: Decoder = Decoder { experts: Some(SCORED_EXPERTS), ..DEEPSEEK_V2 };
pub(crate) const ERNIE_MOE: Decoder = Decoder {
    experts: Some(ExpertLayer {
        count: "moe_num_experts",
        shared: Shared::Several("moe_num_shared_experts"),
        sparse: ernie_layers,
        ..EXPERTS
    }),
    ..ERNIE
};
pub(crate) const MINIMAX: Decoder = Decoder {
    head_norms: HeadNorms::All,
    experts: Some(ExpertLayer { per_expert: &["e_score_correction_bias"], ..MIXTRAL_EXPERTS }),
    ..LLAMA
};
