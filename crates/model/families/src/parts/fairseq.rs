//! Layers of encoders and decoders with the names of fairseq.

use crate::indices::Indices;
use crate::parts::{linears, norms};
use crate::size::Size;
use crate::tree::Scope;

/// Adds the layers of a transformer with the names of fairseq.
pub(crate) fn layers(
    s: &Scope<'_>,
    layers: &Indices,
    [hidden, inner]: [Size; 2],
    has_cross: bool,
    key_bias: bool,
) {
    let l = s.each("layers", layers);
    for (module, norm) in [("self_attn", "self_attn_layer_norm"), ("encoder_attn", "encoder_attn_layer_norm")]
    {
        if module == "self_attn" || has_cross {
            linears(&l.at(module), &["q_proj", "v_proj", "out_proj"], [hidden, hidden], true);
            l.at(module).linear("k_proj", [hidden, hidden], key_bias);
            norms(&l, hidden, &[norm], true);
        }
    }
    linears(&l, &["fc1"], [inner, hidden], true);
    linears(&l, &["fc2"], [hidden, inner], true);
    norms(&l, hidden, &["final_layer_norm"], true);
}
