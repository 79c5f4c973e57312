//! Attributes of a decoder's module, besides its record and its lists of weights.

use decoder::{Activation, Decoder};

use super::super::positions::Positions;
use super::super::version::{Attributes, size};
use crate::Result;
use crate::module::Value;

/// Returns the attributes that the methods read.
pub(super) fn attributes(decoder: &Decoder, positions: &Positions) -> Result<Attributes> {
    let mut own = constants(decoder)?;
    own.extend(rotations(decoder, positions)?);
    own.extend(layers(decoder)?);
    Ok(own)
}

/// Returns the numbers that all layers share.
fn constants(decoder: &Decoder) -> Result<Attributes> {
    let block = decoder.block();
    let mut own = vec![
        size("vocab", decoder.vocab())?,
        size("head_dim", decoder.head_dim())?,
        size("n_kv_heads", decoder.n_kv_heads())?,
        number("norm_eps", decoder.norm_eps()),
        // The dimension is an attribute because the fuser of 2.0.1 would fuse a concatenation along a constant.
        size("cat_dim", 1)?,
    ];
    let scales = &block.scales;
    for (name, factor) in [
        ("embedding_scale", scales.embedding),
        ("residual_scale", scales.residual),
        ("logits_scale", scales.logits),
    ] {
        if factor.to_bits() != 1.0_f64.to_bits() {
            own.push(number(name, factor));
        }
    }
    let optional = [
        ("logits_cap", scales.logits_soft_cap),
        ("score_scale", block.scores.scale),
        ("score_cap", block.scores.soft_cap),
    ];
    own.extend(optional.into_iter().filter_map(|(name, value)| Some(number(name, value?))));
    if let Activation::ClampedSwiglu { alpha, limit } = block.activation {
        own.extend([number("alpha", alpha), number("limit", limit)]);
    }
    if let Some(experts) = &block.experts {
        own.extend([size("n_experts", experts.count)?, size("per_token", experts.per_token)?]);
    }
    Ok(own)
}

/// Returns the frequencies of the rotary embeddings, and the index of each layer's embedding.
fn rotations(decoder: &Decoder, positions: &Positions) -> Result<Attributes> {
    let floats = |name, numbers: Vec<f64>| {
        ints(name, numbers.into_iter().map(|number| number.to_bits().cast_signed()).collect())
    };
    let mut own = match positions.theta() {
        Some(theta) => vec![size("rotated", decoder.rotated())?, number("rope_theta", theta)],
        None => vec![floats("frequencies", positions.frequencies(0))],
    };
    if let Some(scaling) = positions.llama3() {
        own.extend([
            number("rope_factor", scaling.factor),
            number("rope_low", scaling.low),
            number("rope_high", scaling.high),
            number("rope_old", scaling.old),
        ]);
    }
    if positions.has_dynamic() {
        let (growth, start) = positions.growth();
        own.extend([
            floats("growth", growth),
            floats("start", start),
            floats("exponents", positions.exponents()),
        ]);
    }
    if positions.has_long() {
        let long = positions.frequencies(u64::MAX);
        own.extend([floats("limits", positions.limits()), floats("long_frequencies", long)]);
    }
    if positions.have_magnitudes() {
        own.push(floats("magnitudes", positions.magnitudes()));
    }
    if positions.rows() > 1 {
        own.extend([size("ropes", positions.rows() as u64)?, ints("rope_of", positions.of_layers())]);
    }
    Ok(own)
}

/// Returns the numbers that differ between layers, besides rotary embeddings.
fn layers(decoder: &Decoder) -> Result<Attributes> {
    let (windows, block) = (decoder.windows(), decoder.block());
    let all = || 0..decoder.n_layers();
    let mut own = Vec::new();
    let windowed: Vec<i64> = all().map(|layer| i64::from(windows.at(layer).is_some())).collect();
    if let Some(window) = windows.size.filter(|_| windowed.contains(&1)) {
        own.push(size("window", window)?);
        if windowed.contains(&0) {
            own.push(ints("windowed", windowed));
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
        own.extend([ints("has_experts", has_experts), ints("place", places)]);
    }
    Ok(own)
}

fn number(name: &str, value: f64) -> (String, Value) {
    (name.to_owned(), Value::Float(value))
}

fn ints(name: &str, numbers: Vec<i64>) -> (String, Value) {
    (name.to_owned(), Value::Ints(Box::new(numbers)))
}
