//! Code of decoders: `forward` as TorchScript source text, and the attributes that it reads.
//!
//! Facts: the text was loaded and run in PyTorch 2.0.1 and 2.15, and its logits were compared with those of
//! Meta's `llama-models` 0.3.0 and Hugging Face's `transformers` 5.23.
//!
//! The weights of one part are in one list, and a loop runs over the layers: the text, and the graph that PyTorch makes of
//! it, are as large for 80 layers as for one.
//!
//! The fuser of 2.0.1 compiles chains of element-wise operations again for each shape, which takes seconds, and makes bf16
//! results differ from call to call. It does not fuse operations that it does not know: in-place operations (`mul_`, `add_`,
//! `rsqrt_`), `to` with a copy, and `cat` along a dimension that is not a constant. So operations are in place wherever
//! their operand has no other use; keep them so.
//!
//! Operands of products with weights have the dtype of the weights. Everything else is computed in f32, or in f64 with f64
//! weights: the residual stream, norms, positions, attention. So bf16 logits are closer to the exact values than those of
//! Meta's or Hugging Face's code, which round these too. Angles of listed frequencies are computed in f64.
//!
//! Numbers that denote dtypes are `c10::ScalarType`s: 4 int64, 5 f16, 6 f32, 7 f64. PyTorch 2.0.1 has no f16 matrix product
//! on the CPU, so f16 weights are widened there, once, in the lists that hold them.

mod alibi;
mod attention;
mod attributes;
mod checks;
mod delta_net;
mod embedding_norm;
mod experts;
mod feed_forward;
mod flags;
mod functions;
mod fused_heads;
mod infer;
mod layer_inputs;
mod learned_positions;
mod markers;
mod mixed_heads;
mod named_values;
mod norm;
mod query_scale;
mod rotation;
mod router;
mod scales;
mod template;
#[cfg(test)]
mod tests;

use super::flag::{Condition, TextVariant};
pub(super) use attributes::attributes;
use flags::HAS_HALF;
use template::Templates;

/// Version number in the records of modules. A change of the text or of the attributes raises it.
pub(super) const CODE_VERSION: u32 = 5;

/// All layers have attention of the same sizes.
const IS_PLAIN_ATTENTION: Condition = |it| !delta_net::HAS_DELTA_NET(it) && !mixed_heads::IS_MIXED(it);

/// Templates of the module's methods. A line that begins with flags in brackets is in the text if all of them hold.
const METHODS: Templates = &[
    (Some(checks::IS_DICT), checks::DICT),
    (Some(checks::IS_POSITIONAL), checks::POSITIONAL),
    (None, infer::START),
    (None, learned_positions::ADDED),
    (None, embedding_norm::NORMALISED),
    (None, layer_inputs::INPUTS),
    (None, infer::POSITIONS),
    (None, query_scale::FACTORS),
    (Some(delta_net::HAS_DELTA_NET), delta_net::STATES),
    (Some(mixed_heads::IS_MIXED), mixed_heads::PAST),
    (None, infer::LAYERS),
    (Some(mixed_heads::IS_MIXED), mixed_heads::ATTENDED),
    (Some(delta_net::HAS_DELTA_NET), delta_net::MIXED),
    (None, fused_heads::SPLIT),
    (Some(IS_PLAIN_ATTENTION), infer::QUERIES),
    (None, query_scale::SCALED),
    (Some(IS_PLAIN_ATTENTION), infer::ATTENDED),
    (None, infer::REST),
    (None, experts::BESIDE),
    (None, infer::ADDED),
    (None, layer_inputs::ADDED),
    (None, infer::LOGITS),
    (Some(mixed_heads::IS_MIXED), mixed_heads::PRESENT),
    (Some(delta_net::HAS_DELTA_NET), delta_net::PRESENT),
    (None, infer::RETURN),
    (None, rotation::FREQUENCIES),
    (None, attention::ATTENTION),
    (Some(delta_net::HAS_DELTA_NET), delta_net::METHODS),
    (Some(delta_net::HAS_DELTA_NET), feed_forward::ACTIVATION),
    (Some(delta_net::HAS_DELTA_NET), delta_net::RECURRENCE),
    (Some(feed_forward::HAS_DENSE_LAYERS), feed_forward::FEED_FORWARD),
    (Some(feed_forward::IS_GATED), feed_forward::GATED),
    (Some(feed_forward::IS_GATED), feed_forward::ACTIVATION),
    (Some(feed_forward::IS_GATED), feed_forward::TIMES_UP),
    (Some(feed_forward::IS_PLAIN), feed_forward::ACTIVATED),
    (Some(feed_forward::IS_PLAIN), feed_forward::ACTIVATION),
    (Some(feed_forward::IS_PLAIN), feed_forward::XIELU),
    (Some(feed_forward::IS_PLAIN), feed_forward::RETURN),
    (Some(experts::HAS_EXPERTS), experts::SCORES),
    (Some(experts::HAS_EXPERTS), router::LINES),
    (Some(experts::HAS_EXPERTS), experts::RESULTS),
];

/// Templates of the functions that the methods call.
const FUNCTIONS: Templates = &[
    (None, checks::FUNCTIONS),
    (Some(learned_positions::IS_LEARNED), learned_positions::FUNCTIONS),
    (Some(delta_net::HAS_DELTA_NET), delta_net::FUNCTIONS),
    (Some(mixed_heads::HAS_NEAR), mixed_heads::FUNCTIONS),
    (None, functions::FUNCTIONS),
    (Some(alibi::HAS_ALIBI), alibi::FUNCTIONS),
    (None, norm::FUNCTIONS),
    (None, rotation::FUNCTIONS),
    (Some(HAS_HALF), functions::HALF),
];

/// Parameters of `forward` of the module, which C++ calls, and of the object that Python calls.
const ANY_INPUTS: &str = "inputs: Any)";
const NAMED_INPUTS: &str = "inputs: Dict[str, Any])";

pub(super) fn methods(variant: TextVariant<'_>) -> String {
    template::expand(METHODS, variant)
}

/// Returns the text of the methods of the object that Python calls: those of the module, with a `forward` that can be
/// called with an empty dict. A module that takes a tensor has no such object.
pub(super) fn entry_methods(variant: TextVariant<'_>) -> Option<String> {
    checks::IS_DICT(variant).then(|| methods(variant).replacen(ANY_INPUTS, NAMED_INPUTS, 1))
}

pub(super) fn functions(variant: TextVariant<'_>) -> String {
    template::expand(FUNCTIONS, variant)
}
