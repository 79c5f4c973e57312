//! Mamba 1 and 2: state spaces alone.

use crate::config::Config;
use crate::family::{Body, Family, Row, built};
use crate::parts::mamba2::Mamba2;
use crate::size::Size;
use crate::tree::Scope;

pub(super) const ROWS: &[Row] =
    &[(&["mamba"], MAMBA), (&["mamba2"], Family { body: Body::Built(mamba2), ..MAMBA })];

const MAMBA: Family = Family { prefix: "backbone", embedding: "embeddings.weight", ..built(mamba, &[]) };

fn mamba(c: &Config<'_>, s: &Scope<'_>) {
    let hidden = c.size("hidden_size");
    let inner = c.number("intermediate_size").unwrap_or(hidden * c.number("expand").unwrap_or(Size(2)));
    let (state, rank) =
        (c.size("state_size"), c.number("time_step_rank").unwrap_or(hidden.div_ceil(Size(16))));
    s.tensor("embeddings.weight", &[c.size("vocab_size"), hidden]);
    let l = s.each("layers", &c.layers());
    l.module("norm", &[hidden], false);
    let m = l.at("mixer");
    m.tensor("A_log", &[inner, state]);
    m.tensor("D", &[inner]);
    m.module("conv1d", &[inner, Size(1), c.size("conv_kernel")], c.flag("use_conv_bias"));
    m.linear("in_proj", [inner * 2, hidden], c.flag("use_bias"));
    m.linear("x_proj", [rank + state * 2, inner], false);
    m.linear("dt_proj", [inner, rank], true);
    m.linear("out_proj", [hidden, inner], c.flag("use_bias"));
    s.module("norm_f", &[hidden], false);
}

fn mamba2(c: &Config<'_>, s: &Scope<'_>) {
    let hidden = c.size("hidden_size");
    s.tensor("embeddings.weight", &[c.size("vocab_size"), hidden]);
    let l = s.each("layers", &c.layers());
    l.module("norm", &[hidden], false);
    Mamba2::named(c, hidden * c.size("expand"), "num_heads", "state_size").add(&l.at("mixer"), hidden);
    s.module("norm_f", &[hidden], false);
}
