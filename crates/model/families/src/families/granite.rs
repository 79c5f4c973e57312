//! Granite 3 and 4: dense, with experts, and with state spaces.

use crate::config::Config;
use crate::decoder::{Decoder, ExpertLayer, LLAMA, LOCAL_EXPERTS, Shared};
use crate::family::{Row, built, family};
use crate::parts::attention_layers;
use crate::parts::mamba2::Mamba2;
use crate::rule::{Rule, rename};
use crate::tree::Scope;

pub(super) const ROWS: &[Row] = &[
    (&["granite"], family(&LLAMA, &[])),
    (&["granitemoe", "granitemoeshared"], family(&GRANITEMOE, RULES)),
    (&["granitemoehybrid"], built(hybrid, RULES)),
];

const RULES: &[Rule] = &[
    rename("block_sparse_moe.experts.gate_up_proj", &["block_sparse_moe.input_linear.weight"]),
    rename("block_sparse_moe.experts.down_proj", &["block_sparse_moe.output_linear.weight"]),
    rename("block_sparse_moe.router.weight", &["block_sparse_moe.router.layer.weight"]),
];

const SPARSE: ExpertLayer = ExpertLayer {
    at: "block_sparse_moe",
    router: "router.weight",
    shared: Shared::Joined("shared_intermediate_size"),
    ..LOCAL_EXPERTS
};

const GRANITEMOE: Decoder = Decoder { experts: Some(SPARSE), ..LLAMA };

fn hybrid(c: &Config<'_>, s: &Scope<'_>) {
    let hidden = c.size("hidden_size");
    s.tensor("embed_tokens.weight", &[c.size("vocab_size"), hidden]);
    let (full, mamba) = attention_layers(c, "layer_types", |_| false);
    let all = s.each("layers", &c.layers());
    LLAMA.norms(c, &all);
    LLAMA.attention(c, &s.each("layers", &full).at("self_attn"));
    Mamba2::prefixed(c).add(&s.each("layers", &mamba).at("mamba"), hidden);
    if c.count("num_local_experts") > 0 {
        SPARSE.add(c, &all);
    } else {
        let (m, inner) = (all.at("shared_mlp"), c.size("shared_intermediate_size"));
        m.linear("input_linear", [inner * 2, hidden], false);
        m.linear("output_linear", [hidden, inner], false);
    }
    s.module("norm", &[hidden], false);
}
