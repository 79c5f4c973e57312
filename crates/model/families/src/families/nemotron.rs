//! Nemotron-H: state spaces, attention, experts and plain layers.

use crate::config::Config;
use crate::decoder::LLAMA;
use crate::family::{Family, Row, built};
use crate::indices::Indices;
use crate::parts::mamba2::Mamba2;
use crate::rule::{DOWN, Rule, rename, unstack};
use crate::size::Size;
use crate::tree::Scope;

pub(super) const ROWS: &[Row] =
    &[(&["nemotron_h"], Family { embedding: "embeddings.weight", ..built(nemotron_h, RULES) })];

const RULES: &[Rule] =
    &[unstack("experts.up_proj", &["experts.{}.up_proj.weight"]), DOWN, rename("^model.", &["backbone."])];

/// Kind of a layer of Nemotron-H.
fn kinds(c: &Config<'_>) -> Vec<&'static str> {
    let kind = |kind: &str| match kind {
        "full_attention" | "attention" | "*" => "full_attention",
        "linear_attention" | "mamba" | "M" => "linear_attention",
        "moe" | "E" => "moe",
        _ => "mlp",
    };
    let pattern = c.written("hybrid_override_pattern").and_then(serde_json::Value::as_str);
    match (c.texts("layers_block_type"), pattern) {
        (Some(kinds), _) if c.written("layers_block_type").is_some() || pattern.is_none() => {
            kinds.into_iter().map(kind).collect()
        }
        (_, Some(pattern)) => pattern.split("").filter(|part| !part.is_empty()).map(kind).collect(),
        // The class computes these.
        _ => vec!["linear_attention", "moe", "full_attention", "mlp"],
    }
}

fn nemotron_h(c: &Config<'_>, s: &Scope<'_>) {
    let hidden = c.size("hidden_size");
    let kinds = kinds(c);
    let all = Indices::below(kinds.len() as u64);
    let of = |kind: &str| {
        let layers = all.filter(|layer| kinds.get(layer as usize).is_some_and(|found| *found == kind));
        s.each("layers", &layers).at("mixer")
    };
    s.tensor("embeddings.weight", &[c.size("vocab_size"), hidden]);
    s.each("layers", &all).module("norm", &[hidden], false);
    let inner = c.size("mamba_num_heads") * c.size("mamba_head_dim");
    Mamba2::named(c, inner, "mamba_num_heads", "ssm_state_size").add(&of("linear_attention"), hidden);
    LLAMA.attention(c, &of("full_attention"));
    let bias = c.flag("mlp_bias");
    let plain = |m: &Scope<'_>, inner: Size| {
        m.linear("up_proj", [inner, hidden], bias);
        m.linear("down_proj", [hidden, inner], bias);
    };
    plain(&of("mlp"), c.size("intermediate_size"));
    let m = of("moe");
    let (count, inner) = (Size(c.count("n_routed_experts")), c.size("moe_intermediate_size"));
    let latent = c.number("moe_latent_size");
    let width = latent.unwrap_or(hidden);
    m.stacked("experts.up_proj", &[count, inner, width]);
    m.stacked("experts.down_proj", &[count, width, inner]);
    m.tensor("gate.weight", &[count, hidden]);
    m.tensor("gate.e_score_correction_bias", &[count]);
    plain(&m.at("shared_experts"), c.size("moe_shared_expert_intermediate_size"));
    if let Some(latent) = latent {
        m.linear("fc1_latent_proj", [latent, hidden], bias);
        m.linear("fc2_latent_proj", [hidden, latent], bias);
    }
    s.module("norm_f", &[hidden], false);
}
