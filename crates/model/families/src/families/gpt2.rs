//! GPT-2, whose matrices are [in, out].

use crate::config::Config;
use crate::family::{Family, Row, built};
use crate::parts::norms;
use crate::rule::BARE_TRANSFORMER;
use crate::size::Size;
use crate::tree::Scope;

pub(super) const ROWS: &[Row] = &[(
    &["gpt2"],
    Family {
        prefix: "transformer",
        embedding: "wte.weight",
        bare: BARE_TRANSFORMER,
        unread: &[".attn.bias", ".attn.masked_bias"],
        ..built(gpt2, &[])
    },
)];

fn gpt2(c: &Config<'_>, s: &Scope<'_>) {
    let hidden = c.size("n_embd");
    let inner = c.number("n_inner").unwrap_or(hidden * 4);
    s.tensor("wte.weight", &[c.size("vocab_size"), hidden]);
    s.tensor("wpe.weight", &[c.size("n_positions"), hidden]);
    let h = s.each("h", &c.layers()).columns_first();
    norms(&h, hidden, &["ln_1", "ln_2"], true);
    let convolution = |name: &str, [input, out]: [Size; 2]| {
        h.tensor(&format!("{name}.weight"), &[input, out]);
        h.tensor(&format!("{name}.bias"), &[out]);
    };
    convolution("attn.c_attn", [hidden, hidden * 3]);
    convolution("attn.c_proj", [hidden, hidden]);
    convolution("mlp.c_fc", [hidden, inner]);
    convolution("mlp.c_proj", [inner, hidden]);
    if c.flag("add_cross_attention") {
        norms(&h, hidden, &["ln_cross_attn"], true);
        convolution("crossattention.c_attn", [hidden, hidden * 2]);
        convolution("crossattention.q_attn", [hidden, hidden]);
        convolution("crossattention.c_proj", [hidden, hidden]);
    }
    norms(s, hidden, &["ln_f"], true);
}
