//! DeepSeek 2 and 3: queries, keys and values of low rank, and experts after some dense layers.

use crate::config::Config;
use crate::decoder::{Decoder, EXPERTS, ExpertLayer, LLAMA, Projections, Shared};
use crate::family::{Row, family};
use crate::rule::NUMBERED;

pub(super) const ROWS: &[Row] =
    &[(&["deepseek_v2"], family(&DEEPSEEK_V2, NUMBERED)), (&["deepseek_v3"], family(&DEEPSEEK_V3, NUMBERED))];

const EXPERTS_OF_V2: ExpertLayer = ExpertLayer {
    count: "n_routed_experts",
    shared: Shared::Several("n_shared_experts"),
    sparse: after_dense,
    ..EXPERTS
};

pub(super) const SCORED_EXPERTS: ExpertLayer =
    ExpertLayer { per_expert: &["gate.e_score_correction_bias"], ..EXPERTS_OF_V2 };

const DEEPSEEK_V2: Decoder =
    Decoder { projections: Projections::LowRank, experts: Some(EXPERTS_OF_V2), ..LLAMA };

const DEEPSEEK_V3: Decoder = Decoder { experts: Some(SCORED_EXPERTS), ..DEEPSEEK_V2 };

fn after_dense(c: &Config<'_>, layer: u32) -> bool {
    u64::from(layer) >= c.number("first_k_dense_replace").map_or(0, |first| first.0)
}
