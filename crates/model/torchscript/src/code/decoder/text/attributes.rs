//! Attributes of a decoder's module, besides its record and its lists of weights.

use decoder::{Activation, Alibi, Decoder};

use super::super::positions::RotaryPositions;
use super::named_values::{NamedValues, float_attribute, ints_attribute, size_attribute};
use super::{delta_net, layer_inputs, mixed_heads, router};
use crate::Result;

/// Returns the attributes that the methods read, besides the lists of weights.
pub(in crate::code::decoder) fn attributes(
    decoder: &Decoder,
    positions: &RotaryPositions,
) -> Result<NamedValues> {
    let mut own = constants(decoder)?;
    own.extend(rotations(positions)?);
    own.extend(layers(decoder)?);
    Ok(own)
}

fn constants(decoder: &Decoder) -> Result<NamedValues> {
    let block = decoder.block();
    let mut own = vec![
        size_attribute("vocab", decoder.vocab())?,
        size_attribute("head_dim", decoder.head_dim())?,
        size_attribute("n_kv_heads", decoder.n_kv_heads())?,
        float_attribute("norm_eps", decoder.norm_eps()),
        // The dimension is an attribute because the fuser of 2.0.1 would fuse a concatenation along a constant.
        size_attribute("cat_dim", 1)?,
    ];
    let scales = &block.scales;
    for (name, factor) in [
        ("embedding_scale", scales.embedding),
        ("residual_scale", scales.residual),
        ("logits_scale", scales.logits),
    ] {
        if factor.to_bits() != 1.0_f64.to_bits() {
            own.push(float_attribute(name, factor));
        }
    }
    let optional = [
        ("logits_cap", scales.logits_soft_cap),
        ("score_scale", block.scores.scale),
        ("score_cap", block.scores.soft_cap),
        ("qkv_limit", block.qkv_limit),
        ("query_scale_beta", block.query_scale.map(|scale| scale.beta)),
        ("query_scale_old", block.query_scale.map(|scale| scale.old)),
    ];
    own.extend(optional.into_iter().filter_map(|(name, value)| Some(float_attribute(name, value?))));
    if let Activation::ClampedSwiglu { alpha, limit } = block.activation {
        own.extend([float_attribute("alpha", alpha), float_attribute("limit", limit)]);
    }
    if let Some(learned) = block.learned_positions {
        own.extend([
            size_attribute("positions", learned.count)?,
            size_attribute("first_position", learned.offset)?,
        ]);
    }
    if let Some(delta_net) = &block.delta_net {
        own.extend(delta_net::attributes(delta_net)?);
    }
    if let Some(mixed) = block.mixed_heads {
        own.extend(mixed_heads::attributes(decoder, mixed)?);
    }
    if let Some(inputs) = block.layer_inputs {
        own.extend(layer_inputs::attributes(inputs, decoder.dim())?);
    }
    if block.alibi.is_some() {
        let slopes = Alibi::slopes(decoder.n_heads()).into_iter();
        let bits = slopes.map(|slope| f64::from(slope).to_bits().cast_signed());
        own.push(ints_attribute("slopes", bits.collect()));
    }
    if let Some(experts) = &block.experts {
        own.extend([
            size_attribute("n_experts", experts.count)?,
            size_attribute("per_token", experts.per_token)?,
        ]);
        own.extend(router::attributes(experts.router, decoder.dim())?);
    }
    Ok(own)
}

fn rotations(positions: &RotaryPositions) -> Result<NamedValues> {
    let floats = |name, numbers: Vec<f64>| {
        ints_attribute(name, numbers.into_iter().map(|number| number.to_bits().cast_signed()).collect())
    };
    let mut own = match positions.theta() {
        Some(theta) => {
            vec![size_attribute("rotated", positions.most_rotated())?, float_attribute("rope_theta", theta)]
        }
        None => vec![floats("frequencies", positions.frequencies(0))],
    };
    if let Some(scaling) = positions.llama3() {
        own.extend([
            float_attribute("rope_factor", scaling.factor),
            float_attribute("rope_low", scaling.low),
            float_attribute("rope_high", scaling.high),
            float_attribute("rope_old", scaling.old),
        ]);
    }
    if positions.has_dynamic() {
        let (growth, start) = positions.base_growth();
        own.extend([
            floats("growth", growth),
            floats("start", start),
            floats("exponents", positions.exponents()),
        ]);
    }
    if positions.has_long_rope() {
        let long = positions.frequencies(u64::MAX);
        own.extend([floats("limits", positions.long_thresholds()), floats("long_frequencies", long)]);
    }
    if positions.has_magnitudes() {
        own.push(floats("magnitudes", positions.magnitudes()));
    }
    if positions.rope_count() > 1 {
        own.extend([
            size_attribute("ropes", positions.rope_count() as u64)?,
            ints_attribute("rope_of", positions.rope_indices()),
        ]);
    }
    Ok(own)
}

/// Returns the numbers that differ between layers, besides rotary embeddings.
fn layers(decoder: &Decoder) -> Result<NamedValues> {
    let (windows, block) = (decoder.windows(), decoder.block());
    let all = || 0..decoder.n_layers();
    let mut own = Vec::new();
    let windowed: Vec<i64> = all().map(|layer| i64::from(windows.window_of(layer).is_some())).collect();
    if let Some(window) = windows.size.filter(|_| windowed.contains(&1)) {
        own.push(size_attribute("window", window)?);
        if windowed.contains(&0) {
            own.push(ints_attribute("windowed", windowed));
        }
    }
    let has_experts: Vec<i64> = all().map(|layer| i64::from(block.has_experts(layer))).collect();
    if has_experts.contains(&0) && has_experts.contains(&1) {
        // Index of the layer among the layers with, or without, experts.
        let mut next = [0_i64; 2];
        let place = |has: &i64| {
            let next = if *has == 1 { &mut next[1] } else { &mut next[0] };
            let place = *next;
            *next = place.saturating_add(1);
            place
        };
        let places = has_experts.iter().map(place).collect();
        own.extend([ints_attribute("has_experts", has_experts), ints_attribute("place", places)]);
    }
    Ok(own)
}
