//! ERNIE 4.5, dense and with experts.

use crate::config::Config;
use crate::decoder::{Bias, Decoder, EXPERTS, ExpertLayer, LLAMA, Mlp, Shared};
use crate::family::{Row, family};
use crate::rule::{DOWN, GATES, Rule, rename};

pub(super) const ROWS: &[Row] =
    &[(&["ernie4_5"], family(&ERNIE, &[])), (&["ernie4_5_moe"], family(&ERNIE_MOE, RULES))];

const RULES: &[Rule] = &[GATES, DOWN, rename("mlp.gate.moe_statics.", &["mlp.moe_statics."])];

const ERNIE: Decoder = Decoder {
    qkv_bias: Bias::Key("use_bias"),
    out_bias: Bias::Key("use_bias"),
    mlp: Mlp::Gated(Bias::Key("use_bias")),
    ..LLAMA
};

const ERNIE_MOE: Decoder = Decoder {
    experts: Some(ExpertLayer {
        count: "moe_num_experts",
        shared: Shared::Several("moe_num_shared_experts"),
        sparse,
        ..EXPERTS
    }),
    ..ERNIE
};

fn sparse(c: &Config<'_>, layer: u32) -> bool {
    let number = |key: &str| c.value(key).and_then(serde_json::Value::as_i64);
    let start = number("moe_layer_start_index").unwrap_or_default();
    let end = number("moe_layer_end_index").filter(|end| *end >= 0).unwrap_or(i64::MAX);
    let interval = c.number("moe_layer_interval").map_or(1, |interval| interval.0);
    let number = u64::from(layer).saturating_add(1);
    number.is_multiple_of(interval) && (start..=end).contains(&i64::from(layer))
}
