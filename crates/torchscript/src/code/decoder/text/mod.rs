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
//! those of Meta's or Hugging Face's code, which round there too. Angles whose frequencies are listed are computed in f64.
//!
//! Numbers as dtypes are `c10::ScalarType`s: 4 int64, 5 f16, 6 f32, 7 f64. There is no f16 matrix product on
//! the CPU in 2.0.1, so f16 weights are widened there, once, in the lists that hold them.

mod checks;
mod forward;
mod functions;

use decoder::{Activation, Decoder, HeadNorm, NormKind, NormPlace, Softmax};

use super::lists::{Lists, has_list};
use super::module::Signature;
use super::positions::Positions;
use crate::Errors;

/// What takes the place of a marker: the text for a list and what it is applied to.
type Marked<T> = fn(T, &str, &str) -> String;

/// What the text is made of.
#[derive(Clone, Copy)]
pub(super) struct Text<'d> {
    pub(super) decoder: &'d Decoder,
    pub(super) positions: &'d Positions,
    /// The lists of weights.
    pub(super) lists: &'d Lists,
    /// Whether one of them is float16.
    pub(super) has_half: bool,
}

impl Text<'_> {
    /// The methods of the module.
    pub(super) fn methods(self, signature: Signature) -> String {
        let (called, bad) = match signature {
            Signature::Dict(Errors::Return) => (checks::DICT, "torch._set_item(out, \"error\", wrong)"),
            Signature::Dict(Errors::Raise) => (checks::DICT, "ops.prim.RaiseException(wrong)"),
            Signature::Positional => (checks::POSITIONAL, ""),
        };
        let held = if self.has_half { "(self.__tensors__{_}).narrow" } else { "self.__tensors__{_}" };
        let layers = format!("torch.len(({held})[\"wq\"])");
        let mut all = called.replace("{bad}", bad).replace("{layers}", &layers);
        let methods = [
            (true, forward::INFER),
            (true, forward::FREQUENCIES),
            (true, forward::ATTENTION),
            (self.holds("feed forward"), forward::FEED_FORWARD),
            (true, forward::GATED),
            (self.holds("experts"), forward::EXPERTS),
        ];
        all.extend(methods.into_iter().filter(|(is_needed, _)| *is_needed).map(|(_, text)| text));
        self.filled(&all)
    }

    /// The functions that the methods call.
    pub(super) fn functions(self) -> String {
        let half = if self.has_half { functions::HALF } else { "" };
        self.filled(&[checks::FUNCTIONS, functions::FUNCTIONS, half].concat())
    }

    /// Whether a flag of the text holds.
    fn holds(self, flag: &str) -> bool {
        let Self { decoder, positions, .. } = self;
        let (block, windows) = (decoder.block(), decoder.windows());
        let (scales, experts) = (&block.scales, block.experts.as_ref());
        let is_layer = block.norm == NormKind::Layer;
        let mut layers = 0..decoder.n_layers();
        #[expect(clippy::float_cmp, reason = "a factor of exactly 1 changes nothing")]
        let changes = |factor: f64| factor != 1.0;
        match flag {
            "norm before" => block.norms != NormPlace::After,
            "norm after" => block.norms != NormPlace::Before,
            "rms" => block.norm == NormKind::Rms,
            "plus one" => block.norm == NormKind::RmsPlusOne,
            "layer norm" => is_layer,
            "head norm" => matches!(block.head_norm, Some(HeadNorm::Head | HeadNorm::EachHead)),
            "projection norm" => block.head_norm == Some(HeadNorm::Projection),
            "layer head norm" => is_layer && block.head_norm.is_some(),
            // Positions.
            "half" => self.has_half,
            "ropes" => positions.rows() > 1,
            "listed" => positions.are_listed(),
            "llama3" => positions.llama3().is_some(),
            "magnitudes" => positions.have_magnitudes(),
            "length" => positions.depend_on_length(),
            "longrope" => positions.has_long(),
            "dynamic" => positions.has_dynamic(),
            "part" => decoder.rotated() < decoder.head_dim(),
            // Attention.
            "some window" => layers.any(|layer| windows.at(layer).is_some()),
            "every window" => layers.all(|layer| windows.at(layer).is_some()),
            "score scale" => block.scores.scale.is_some(),
            "score cap" => block.scores.soft_cap.is_some(),
            "sinks" => block.scores.sinks,
            // Constants.
            "embedding scale" => changes(scales.embedding),
            "residual scale" => changes(scales.residual),
            "logits scale" => changes(scales.logits),
            "logits cap" => scales.logits_soft_cap.is_some(),
            // The feed-forward layer.
            "parallel" => block.parallel,
            "silu" => block.activation == Activation::Silu,
            "gelu" => block.activation == Activation::Gelu,
            "gelu tanh" => block.activation == Activation::GeluTanh,
            "clamped" => matches!(block.activation, Activation::ClampedSwiglu { .. }),
            "feed forward" => !layers.all(|layer| block.has_experts(layer)),
            "experts" => layers.any(|layer| block.has_experts(layer)),
            "softmax before" => experts.is_some_and(|experts| experts.softmax == Softmax::BeforeChoice),
            "softmax after" => experts.is_some_and(|experts| experts.softmax == Softmax::AfterChoice),
            "renormalised" => experts.is_some_and(|experts| experts.renormalised),
            "interleaved" => experts.is_some_and(|experts| experts.interleaved),
            "shared" => experts.is_some_and(|experts| experts.shared.is_some()),
            "shared gate" => experts.and_then(|experts| experts.shared).is_some_and(|shared| shared.gated),
            _ => unreachable!("the flags of the text are those above"),
        }
    }

    /// The text without the lines whose flags do not hold, and with all markers but `{_}` and `{ns}` filled.
    fn filled(self, text: &str) -> String {
        let (split, dim) =
            if self.decoder.layout().rotates_halves { ("2, -1", "-2") } else { ("-1, 2", "-1") };
        let mut out = String::with_capacity(text.len());
        for line in text.lines() {
            let start = line.trim_start();
            let flags = start.strip_prefix('[').and_then(|rest| rest.split_once("] "));
            if let Some((flags, statement)) = flags {
                let hold = |flag: &str| match flag.strip_prefix("not ") {
                    Some(flag) => !self.holds(flag),
                    None => self.holds(flag),
                };
                if !flags.split(", ").all(hold) {
                    continue;
                }
                out.extend(std::iter::repeat_n(' ', line.len().saturating_sub(start.len())));
                self.markers(&mut out, statement);
            } else {
                self.markers(&mut out, line);
            }
            out.push('\n');
        }
        out.replace("{split}", split).replace("{dim}", dim)
    }

    /// Adds a line, with the products and norms in the places of their markers.
    fn markers(self, out: &mut String, line: &str) {
        let mut rest = line;
        let kinds: [(&str, Marked<Self>); 3] =
            [("{linear ", Self::linear), ("{norm ", Self::norm), ("{head norm ", Self::head_norm)];
        loop {
            let next = kinds.iter().filter_map(|(start, text)| Some((rest.find(start)?, start, text)));
            let next = next.min_by_key(|(at, ..)| *at);
            let Some((at, start, text)) = next else { break };
            let (before, marker) = rest.split_at_checked(at).unwrap_or((rest, ""));
            let (marker, after) = marker.split_once('}').unwrap_or((marker, ""));
            let marker = marker.strip_prefix(start).unwrap_or(marker);
            let (list, operand) = marker.split_once(' ').unwrap_or((marker, ""));
            out.push_str(before);
            out.push_str(&text(self, list, operand));
            rest = after;
        }
        out.push_str(rest);
    }

    fn linear(self, list: &str, operand: &str) -> String {
        let (x, number) = operand.split_once(' ').unwrap_or((operand, "i"));
        let weight = |list: &str| {
            if self.has_half {
                format!(", (self.__tensors__{{_}}).weight(\"{list}\", {number}, {x}, )")
            } else {
                format!(", {{ns}}.weight(weights[\"{list}\"], {number}, {x})")
            }
        };
        let bias = super::lists::biases_of(list);
        let bias = if has_list(self.lists, &bias) { weight(&bias) } else { String::new() };
        format!("torch.linear({x}{}{bias})", weight(list))
    }

    fn norm(self, list: &str, x: &str) -> String {
        let weight =
            if list == "outer" { "outer[1]".to_owned() } else { format!("(weights[\"{list}\"])[i]") };
        let bias = match list {
            _ if !self.holds("layer norm") => String::new(),
            "outer" => "(weights[\"norm_bias\"])[0], ".to_owned(),
            _ => format!("(weights[\"{}\"])[i], ", super::lists::biases_of(list)),
        };
        format!("{{ns}}.norm({x}, {weight}, {bias}self.norm_eps{{_}})")
    }

    fn head_norm(self, list: &str, x: &str) -> String {
        let norm = if self.holds("layer head norm") { "head_norm" } else { "norm" };
        let weight = match self.decoder.block().head_norm {
            Some(HeadNorm::EachHead) => format!(
                "torch.stack(torch.slice(weights[\"{list}\"], torch.mul(i, torch.size({x}, 2)), \
                 torch.mul(torch.add(i, 1), torch.size({x}, 2))))"
            ),
            _ => format!("(weights[\"{list}\"])[i]"),
        };
        format!("{{ns}}.{norm}({x}, {weight}, self.norm_eps{{_}})")
    }
}

#[cfg(test)]
mod tests;
