//! Validation of a decoder's facts, whether a document or the record of a module states them.
//!
//! Facts: the validation of configurations in Hugging Face's `transformers` 5.23, where it exists.

use crate::Result;
use crate::block::{Block, Experts, HeadNormScope, NormKind, NormPlace};
use crate::feed_forward::Activation;
use crate::hyperparameters::{AttentionWindows, WindowedLayers};
use crate::layout::SizeKeys;
use crate::mixed_heads::MixedHeads;
use crate::param_error::{MakeParamError, check_positive};
use crate::rope::{Llama3, LongRope, Rope, RopeScaling, Yarn};
use crate::router::Router;

/// Hyperparameters of a decoder that are validated together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HyperparameterCheck<'f> {
    pub(crate) keys: &'f SizeKeys,
    pub(crate) n_layers: u64,
    pub(crate) n_heads: u64,
    /// True if the norms of queries and keys have biases.
    pub(crate) head_norm_bias: bool,
    pub(crate) head_dim: u64,
    pub(crate) rotated: u64,
    pub(crate) norm_eps: f64,
    pub(crate) ropes: &'f [Rope],
    pub(crate) rope_of_layer: Option<&'f [Option<usize>]>,
    pub(crate) windows: &'f AttentionWindows,
    pub(crate) block: &'f Block,
    pub(crate) skipped_layers: &'f [u64],
}

/// Maximum number of experts in a layer: several times that of any model. Every expert is listed, and a tensor with stride 0
/// can claim any number of them with a few bytes.
const EXPERTS_MAX: u64 = 4096;

/// Maximum number of rotary dimensions in a head: a hundred times that of any model. Each pair has a frequency.
const ROTATED_MAX: u64 = 1 << 16;

/// Maximum number of heads with a slope each: a hundred times that of any model.
const SLOPES_MAX: u64 = 1 << 14;

impl HyperparameterCheck<'_> {
    /// Checks that the forward can compute with all numbers, and that lists have an entry for each layer.
    ///
    /// # Errors
    /// Returns an error that names the key of the first value that is out of range.
    pub(crate) fn check(&self, wrong: MakeParamError<'_>) -> Result<()> {
        check_positive(wrong, &[("norm_eps", self.norm_eps)])?;
        if self.rotated < 2 || !self.rotated.is_multiple_of(2) || self.rotated > self.head_dim {
            let expected =
                format!("a part that makes an even number of {} {}", self.keys.head_dim, self.head_dim);
            return Err(wrong(
                "partial_rotary_factor",
                &format!("{} numbers of a head", self.rotated),
                expected,
            ));
        }
        if self.rotated > ROTATED_MAX {
            return Err(wrong(self.keys.head_dim, &self.head_dim, format!("at most {ROTATED_MAX}")));
        }
        // Before the frequencies, of which these heads may have most.
        self.block.mixed_heads.map_or(Ok(()), |mixed| self.check_mixed_heads(wrong, &mixed))?;
        for rope in self.ropes {
            self.check_rope(wrong, rope)?;
            self.check_frequencies(wrong, rope)?;
        }
        self.block.layer_inputs.map_or(Ok(()), |inputs| inputs.check(wrong))?;
        if let Some(ropes) = self.rope_of_layer {
            self.check_layer_list(wrong, "rope_of_layer", ropes.len())?;
            if let Some(other) = ropes.iter().flatten().find(|index| **index >= self.ropes.len()) {
                return Err(wrong("rope_of_layer", other, format!("less than {}", self.ropes.len())));
            }
        }
        if !self.skipped_layers.is_sorted_by(|one, next| one < next) {
            let found = format!("{:?}", self.skipped_layers);
            return Err(wrong("cross_attention_layers", &found, "numbers of layers in order".to_owned()));
        }
        if self.windows.size == Some(0) {
            return Err(wrong("sliding_window", &0, "at least 1".to_owned()));
        }
        if let WindowedLayers::Listed(listed) = &self.windows.layers {
            self.check_layer_list(wrong, "layer_types", listed.len())?;
        }
        self.check_block(wrong)
    }

    fn check_mixed_heads(&self, wrong: MakeParamError<'_>, mixed: &MixedHeads) -> Result<()> {
        mixed.check(wrong, self.keys.n_heads, self.n_heads)?;
        let has_window = |layer: &u64| self.windows.window_of(*layer).is_some();
        let own = |window: bool| (0..mixed.first_shared).any(|layer| has_window(&layer) == window);
        let shared =
            |window: bool| (mixed.first_shared..self.n_layers).any(|layer| has_window(&layer) == window);
        if mixed.first_shared > self.n_layers || [true, false].iter().any(|kind| shared(*kind) && !own(*kind))
        {
            let found = self.n_layers.saturating_sub(mixed.first_shared);
            let expected =
                "a number that leaves a layer of each kind with keys and values of its own".to_owned();
            return Err(wrong("num_kv_shared_layers", &found, expected));
        }
        if self.n_layers.checked_sub(1).is_none_or(|last| has_window(&last)) {
            let expected = "\"full_attention\" in the last layer".to_owned();
            return Err(wrong("layer_types", &"\"sliding_attention\"", expected));
        }
        if self.block.has_plain_heads() && self.has_rope_of_each_kind() {
            return Ok(());
        }
        let expected =
            "attention with norms of each head, and a rotary embedding of whole heads for each kind of layer";
        Err(wrong("layer_types", &"attention of another kind", expected.to_owned()))
    }

    /// Returns true if the first rotary embedding is that of layers without a window, and the second one that of the others.
    fn has_rope_of_each_kind(&self) -> bool {
        let is_of_kind = |(layer, rope): (u64, &Option<usize>)| {
            *rope == Some(usize::from(self.windows.window_of(layer).is_some()))
        };
        let of_layers = self.rope_of_layer.unwrap_or_default();
        of_layers.len() as u64 == self.n_layers
            && (0..).zip(of_layers).all(is_of_kind)
            && self.ropes.len() == 2
            && self.rotated == self.head_dim
            && !self.ropes.iter().any(Rope::depends_on_length)
    }

    fn check_layer_list(&self, wrong: MakeParamError<'_>, key: &str, len: usize) -> Result<()> {
        if len as u64 == self.n_layers {
            return Ok(());
        }
        let expected = format!("one entry for each of {} layers", self.n_layers);
        Err(wrong(key, &format!("a list of {len}"), expected))
    }

    fn check_rope(&self, wrong: MakeParamError<'_>, rope: &Rope) -> Result<()> {
        check_positive(wrong, &[("rope_theta", rope.theta)])?;
        let old = |old| ("original_max_position_embeddings", old);
        let factor = |factor| ("factor", factor);
        let magnitude = |magnitude| ("attention_factor", magnitude);
        match &rope.scaling {
            None => Ok(()),
            Some(RopeScaling::Llama3(llama3)) => {
                let Llama3 { low, high, .. } = *llama3;
                let numbers = [factor(llama3.factor), ("low_freq_factor", low), ("high_freq_factor", high)];
                check_positive(wrong, &numbers)?;
                check_positive(wrong, &[old(llama3.old)])?;
                if low < high {
                    return Ok(());
                }
                Err(wrong("high_freq_factor", &high, format!("more than low_freq_factor {low}")))
            }
            Some(RopeScaling::Linear { factor: by }) => check_positive(wrong, &[factor(*by)]),
            Some(RopeScaling::Proportional { part, factor: by }) => {
                check_positive(wrong, &[factor(*by), ("partial_rotary_factor", *part)])?;
                if *part <= 1.0 {
                    return Ok(());
                }
                Err(wrong("partial_rotary_factor", part, "at most 1".to_owned()))
            }
            Some(RopeScaling::Dynamic { factor: by, old: tokens }) => {
                if self.rotated == 2 {
                    let expected = "more than 2, because the base grows with rotated / (rotated - 2)";
                    return Err(wrong(self.keys.head_dim, &2, expected.to_owned()));
                }
                // A factor below 1 would make the base negative for a long sequence.
                if *by < 1.0 {
                    return Err(wrong("factor", by, "at least 1".to_owned()));
                }
                check_positive(wrong, &[factor(*by), ("max_position_embeddings", *tokens)])
            }
            Some(RopeScaling::Yarn(yarn)) => {
                let Yarn { fast, slow, .. } = *yarn;
                let numbers = [factor(yarn.factor), ("beta_fast", fast), ("beta_slow", slow), old(yarn.old)];
                check_positive(wrong, &numbers)?;
                check_positive(wrong, &[magnitude(yarn.magnitude)])?;
                if rope.theta > 1.0 {
                    return Ok(());
                }
                Err(wrong(
                    "rope_theta",
                    &rope.theta,
                    "more than 1, because YaRN divides by its logarithm".to_owned(),
                ))
            }
            Some(RopeScaling::LongRope(LongRope { short, long, old: tokens, magnitude: by })) => {
                check_positive(wrong, &[old(*tokens), magnitude(*by)])?;
                let pairs = self.rotated.checked_div(2).unwrap_or(0);
                for (key, factors) in [("short_factor", short), ("long_factor", long)] {
                    if factors.len() as u64 != pairs {
                        let expected = format!("one factor for each of {pairs} pairs");
                        return Err(wrong(key, &format!("a list of {}", factors.len()), expected));
                    }
                    factors.iter().try_for_each(|factor| check_positive(wrong, &[(key, *factor)]))?;
                }
                Ok(())
            }
        }
    }

    /// Checks that float32, in which modules compute, has the base and every frequency. An infinite frequency would give the
    /// first token an angle that is not a number.
    fn check_frequencies(&self, wrong: MakeParamError<'_>, rope: &Rope) -> Result<()> {
        let [smallest, largest] = [f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX)];
        if rope.theta < smallest {
            return Err(wrong("rope_theta", &rope.theta, format!("at least {smallest:.1e}")));
        }
        // A text that is longer than any context gets the frequencies for long texts, if there are any.
        let rotated = self.block.mixed_heads.map_or(self.rotated, |mixed| mixed.head_dim.max(self.rotated));
        let frequencies = [0, u64::MAX].map(|tokens| rope.frequencies(rotated, tokens));
        match frequencies.iter().flatten().find(|frequency| !(0.0..=largest).contains(*frequency)) {
            None => Ok(()),
            Some(frequency) => {
                let expected = format!(
                    "a base that gives frequencies of at most {largest:.1e}, but with its scaling one is {frequency:.1e}"
                );
                Err(wrong("rope_theta", &rope.theta, expected))
            }
        }
    }

    fn check_block(&self, wrong: MakeParamError<'_>) -> Result<()> {
        let Block {
            scores, scales, parallel, norms, experts, qkv_limit, query_scale, head_norm_last, ..
        } = self.block;
        for (key, number) in [
            ("attention_multiplier", scores.scale.unwrap_or(1.0)),
            ("embedding_multiplier", scales.embedding),
            ("residual_multiplier", scales.residual),
            ("logits_scaling", scales.logits),
        ] {
            if !number.is_finite() {
                return Err(wrong(key, &number, "a number".to_owned()));
            }
        }
        check_positive(wrong, &[("attn_logit_softcapping", scores.soft_cap.unwrap_or(1.0))])?;
        check_positive(wrong, &[("final_logit_softcapping", scales.logits_soft_cap.unwrap_or(1.0))])?;
        check_positive(wrong, &[("clip_qkv", qkv_limit.unwrap_or(1.0))])?;
        query_scale.map_or(Ok(()), |scale| scale.check(wrong))?;
        self.block.learned_positions.map_or(Ok(()), |positions| positions.check(wrong))?;
        self.block.feed_forward.check(wrong, self.block.activation, self.block.experts.is_some())?;
        if *head_norm_last && self.ropes.iter().any(Rope::depends_on_length) {
            let expected = "one that does not depend on the length, because keys are normalised after it";
            return Err(wrong("rope_type", &"dynamic", expected.to_owned()));
        }
        if self.block.fused_heads && (self.block.head_norm.is_some() || qkv_limit.is_some()) {
            let expected = "none, because queries, keys and values are one matrix".to_owned();
            return Err(wrong("qk_layernorm", &"true", expected));
        }
        let has_ropes = (0..self.n_layers).any(|layer| {
            let of_layer = usize::try_from(layer).ok().and_then(|layer| self.rope_of_layer?.get(layer));
            of_layer.is_none_or(Option::is_some)
        });
        if let Some(delta_net) = &self.block.delta_net {
            delta_net.check(wrong, self.n_layers)?;
        }
        if self.block.delta_net.is_some() != self.block.gated_attention
            || (self.block.gated_attention && !self.has_plain_attention())
        {
            let expected = "attention with gates, norms of each head and one rotary embedding, next to \
                            \"linear_attention\", and no windows"
                .to_owned();
            return Err(wrong("layer_types", &"attention of another kind", expected));
        }
        let is_one = matches!(self.block.head_norm, Some(HeadNormScope::Head));
        if self.head_norm_bias && !(is_one && self.block.norm == NormKind::Layer) {
            return Err(wrong("qk_layernorm", &"with biases", "one layer norm of all heads".to_owned()));
        }
        if self.block.alibi.is_some() && self.n_heads > SLOPES_MAX {
            return Err(wrong(self.keys.n_heads, &self.n_heads, format!("at most {SLOPES_MAX}")));
        }
        if self.block.alibi.is_some() && has_ropes {
            return Err(wrong("alibi", &"true", "no rotary embedding next to it".to_owned()));
        }
        if *parallel && *norms != NormPlace::Before {
            let expected = "layers with one norm, before attention".to_owned();
            return Err(wrong("use_parallel_residual", &"true", expected));
        }
        experts.as_ref().map_or(Ok(()), |experts| self.check_experts(wrong, experts))
    }

    /// Returns true if attention is of the only kind that there is next to `DeltaNet`, besides its gates.
    fn has_plain_attention(&self) -> bool {
        let Block { head_norm, head_norm_last, fused_heads, qkv_limit, query_scale, .. } = self.block;
        *head_norm == Some(HeadNormScope::Head)
            && !(*head_norm_last || *fused_heads || qkv_limit.is_some() || query_scale.is_some())
            && self.windows.size.is_none()
            && self.rope_of_layer.is_none()
            && !matches!(self.block.activation, Activation::ClampedSwiglu { .. } | Activation::Xielu)
            && !self.ropes.iter().any(Rope::depends_on_length)
    }

    fn check_experts(&self, wrong: MakeParamError<'_>, experts: &Experts) -> Result<()> {
        let Experts { count, per_token, hidden, shared, layers, .. } = experts;
        if !(1..=EXPERTS_MAX).contains(count) {
            return Err(wrong("num_experts", count, format!("1 to {EXPERTS_MAX}")));
        }
        if !(1..=*count).contains(per_token) {
            return Err(wrong(
                "num_experts_per_tok",
                per_token,
                format!("1 to {count}, the number of experts"),
            ));
        }
        if *hidden == 0 || shared.is_some_and(|shared| shared.hidden == 0) {
            return Err(wrong("moe_intermediate_size", &0, "at least 1".to_owned()));
        }
        if layers.contains(&true) {
            experts.router.check(wrong, *count, *per_token)?;
        }
        let is_scaled = experts.router == Router::Scaled;
        if is_scaled || experts.beside_dense {
            let has_four_norms = self.block.norms == NormPlace::Both && self.block.norm == NormKind::Rms;
            let is_plain =
                !(experts.biases || experts.interleaved || self.block.parallel || shared.is_some());
            let is_whole = layers.iter().all(|has| *has) && experts.renormalised;
            if !(is_scaled && experts.beside_dense && has_four_norms && is_plain && is_whole) {
                let expected =
                    "experts next to each dense feed-forward layer, with norms before and after".to_owned();
                return Err(wrong("enable_moe_block", &"experts of another kind", expected));
            }
        }
        self.check_layer_list(wrong, "mlp_only_layers", layers.len())
    }
}
