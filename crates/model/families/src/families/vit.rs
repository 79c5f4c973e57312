//! `ViT`: an encoder of images.

use crate::config::Config;
use crate::family::{Family, Row, built};
use crate::parts::{linears, norms};
use crate::rule::{Rule, rename};
use crate::size::Size;
use crate::tree::Scope;

pub(super) const ROWS: &[Row] = &[(&["vit"], Family { prefix: "vit", ..built(vit, RULES) })];

const RULES: &[Rule] = &[
    rename("attention.q_proj.", &["attention.attention.query."]),
    rename("attention.k_proj.", &["attention.attention.key."]),
    rename("attention.v_proj.", &["attention.attention.value."]),
    rename("attention.o_proj.", &["attention.output.dense."]),
    rename("mlp.fc1.", &["intermediate.dense."]),
    rename("mlp.fc2.", &["output.dense."]),
    rename("layers.", &["encoder.layer."]),
];

fn vit(c: &Config<'_>, s: &Scope<'_>) {
    let (hidden, inner) = (c.size("hidden_size"), c.size("intermediate_size"));
    let patch = c.size("patch_size");
    let side = c.size("image_size") / patch;
    let e = s.at("embeddings");
    e.tensor("cls_token", &[Size(1), Size(1), hidden]);
    e.tensor("position_embeddings", &[Size(1), side * side + 1, hidden]);
    e.module("patch_embeddings.projection", &[hidden, c.size("num_channels"), patch, patch], true);
    let l = s.each("layers", &c.layers());
    for name in ["q_proj", "k_proj", "v_proj"] {
        l.at("attention").linear(name, [hidden, hidden], c.flag("qkv_bias"));
    }
    linears(&l, &["attention.o_proj"], [hidden, hidden], true);
    linears(&l, &["mlp.fc1"], [inner, hidden], true);
    linears(&l, &["mlp.fc2"], [hidden, inner], true);
    norms(&l, hidden, &["layernorm_before", "layernorm_after"], true);
    norms(s, hidden, &["layernorm"], true);
}
