//! The code of the decoders that are written now: the forward as TorchScript source text, and the attributes that it reads.
//!
//! Everything that the version consists of is in this folder. Where it changes for a decoder that could be written before, the
//! folder is copied into `older/` first, and the change gets the next number.
//!
//! Facts: the text was loaded and run in PyTorch 2.0.1 and 2.15, and its logits were compared with those of
//! Meta's `llama-models` 0.3.0 and Hugging Face's `transformers` 5.23.
//!
//! The weights of one kind are in one list, and a loop goes over the layers: the text, and the graph that
//! PyTorch makes of it, are as large at 80 layers as at one.
//!
//! The fuser of 2.0.1 compiles chains of element-wise operations anew for each shape, in seconds, and lets
//! bf16 results differ from call to call. It leaves alone what it does not know: in-place operations
//! (`mul_`, `add_`, `rsqrt_`), `to` with a copy, and `cat` along a dimension that is not a constant.
//! So operations are in place wherever nothing else uses their operand; keep them so.
//!
//! What is multiplied with weights has their dtype. All else is computed in f32, in f64 where the weights are: the sum
//! that each layer adds to, norms, positions, attention. So bf16 logits are nearer to the exact ones than
//! those of Meta's or Hugging Face's code, which round there too. Angles whose frequencies are listed are computed in f64.
//!
//! Numbers as dtypes are `c10::ScalarType`s: 4 int64, 5 f16, 6 f32, 7 f64. There is no f16 matrix product on
//! the CPU in 2.0.1, so f16 weights are widened there, once, in the lists that hold them.

mod attributes;
mod checks;
mod forward;
mod functions;
mod markers;

use super::flag::Flag;
use super::version::Version;

pub(super) static VERSION: Version = Version {
    number: 4,
    methods: &[
        (Some(Flag::Dict), checks::DICT),
        (Some(Flag::Positional), checks::POSITIONAL),
        (None, forward::INFER),
        (None, forward::FREQUENCIES),
        (None, forward::ATTENTION),
        (Some(Flag::FeedForward), forward::FEED_FORWARD),
        (None, forward::GATED),
        (Some(Flag::Experts), forward::EXPERTS),
    ],
    functions: &[
        (None, checks::FUNCTIONS),
        (None, functions::FUNCTIONS),
        (Some(Flag::Half), functions::HALF),
    ],
    markers: [("{linear ", markers::linear), ("{norm ", markers::norm), ("{head norm ", markers::head_norm)],
    attributes: attributes::attributes,
};
