//! The forward of a decoder as TorchScript source text, made of what its flags need.
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
//! those of Meta's or Hugging Face's code, which round there too.
//!
//! Numbers as dtypes are `c10::ScalarType`s: 4 int64, 5 f16, 6 f32, 7 f64. There is no f16 matrix product on
//! the CPU in 2.0.1, so f16 weights are widened there, once, in the lists that hold them.

mod checks;
mod forward;
mod functions;

use decoder::{Biases, Decoder, Part};

use super::lists::{biases_list, weights_list};
use super::module::Signature;
use crate::Errors;

/// The methods of the module that runs this decoder.
pub(super) fn methods(decoder: &Decoder, signature: Signature) -> String {
    let (forward, bad) = match signature {
        Signature::Dict(Errors::Return) => (checks::DICT, "torch._set_item(out, \"error\", wrong)"),
        Signature::Dict(Errors::Raise) => (checks::DICT, "ops.prim.RaiseException(wrong)"),
        Signature::Positional => (checks::POSITIONAL, ""),
    };
    let all = [&forward.replace("{bad}", bad), forward::INFER].concat();
    linear(&all, decoder.biases())
}

/// The functions that the methods call.
pub(super) fn functions(decoder: &Decoder) -> String {
    let (split, dim) = if decoder.layout().rotates_halves { ("2, -1", "-2") } else { ("-1, 2", "-1") };
    [checks::FUNCTIONS, functions::FUNCTIONS].concat().replace("{split}", split).replace("{dim}", dim)
}

/// Puts the product of a layer's matrix, and its bias if it has one, in the place of each `{linear PART X}`.
fn linear(text: &str, biases: Biases) -> String {
    let mut out = text.to_owned();
    for part in Part::ALL {
        let list = weights_list(part);
        for x in ["x", "y", "o", "g"] {
            let weight = |list: &str| format!(", {{ns}}.weight(weights[\"{list}\"], i, {x})");
            let bias = if biases.contains(part) { weight(&biases_list(part)) } else { String::new() };
            let call = format!("torch.linear({x}{}{bias})", weight(list));
            out = out.replace(&format!("{{linear {list} {x}}}"), &call);
        }
    }
    out
}
