//! The module that runs a decoder: its attributes and its text.

use decoder::{Activation, Assignment, Decoder};
use tensor::{Dtype, Tensor};

use super::lists::lists;
use super::ports;
use super::positions::Positions;
use super::text::Text;
use crate::archive::Archive;
use crate::code::state;
use crate::module::Value;
use crate::{Converted, Error, Errors, Kind, Note, Outputs, Result, Returns};

/// How `forward` is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::code) enum Signature {
    /// With a dict of tensors. It returns a dict, as Carton's runner requires, and this is what it does with wrong inputs.
    Dict(Errors),
    /// With one tensor. It returns one, because Triton refuses a dict. Wrong inputs raise an exception.
    Positional,
}

/// A module that runs: `tokens` int64 [batch, seq] → `logits` float32 [batch, seq, vocab]. With `keep_extra`,
/// tensors that it does not use stay in its `state_dict`.
///
/// # Errors
/// When the tensors are not the decoder's, or TorchScript cannot express a name, a tensor or a size.
pub(in crate::code) fn module(
    decoder: &Decoder,
    tensors: &[(String, Tensor)],
    keep_extra: bool,
    signature: Signature,
) -> Result<Converted> {
    let assignment = decoder.assign(tensors, keep_extra)?;
    let (archive, more) = archive(signature, decoder, &assignment, tensors)?;
    let notes = assignment.notes.into_iter().map(Note::Decoder).chain(more).collect();
    let (mut inputs, mut outputs) = ports::ports(decoder);
    if signature == Signature::Positional {
        inputs.retain(|port| !port.optional);
        outputs.retain(|port| !port.optional);
    }
    let kind = Kind::Model { name: decoder.architecture().name() };
    let outputs = Outputs(Returns::Ports(outputs));
    Ok(Converted {
        archive,
        inputs,
        outputs,
        notes,
        kind,
        decoder: Some(decoder.clone()),
        why: None,
        signature: None,
    })
}

/// The archive of a decoder whose `forward` has this signature, and notes about it.
pub(super) fn archive(
    signature: Signature,
    decoder: &Decoder,
    assignment: &Assignment,
    tensors: &[(String, Tensor)],
) -> Result<(Archive, Vec<Note>)> {
    let lists = lists(&assignment.weights);
    let positions = Positions::new(decoder);
    let mut dtypes = assignment.weights.iter().filter_map(|weight| Some(weight.tensor(tensors)?.dtype()));
    let has_half = dtypes.any(|dtype| dtype == Dtype::Float16);
    let text = Text { decoder, positions: &positions, lists: &lists, has_half };
    let (methods, functions) = (text.methods(signature), text.functions());
    let mut own = constants(decoder)?;
    own.extend(rotations(decoder, &positions)?);
    own.extend(layers(decoder)?);
    let lists = Box::new(lists);
    let lists = if has_half { Value::Half(lists) } else { Value::Lists(lists) };
    own.insert(0, ("__tensors__".to_owned(), lists));
    state::archive(tensors, decoder.architecture().class(), &methods, &functions, own)
}

/// Attributes, each with its name.
type Attributes = Vec<(String, Value)>;

/// The numbers that all layers share.
fn constants(decoder: &Decoder) -> Result<Attributes> {
    let block = decoder.block();
    let mut own = vec![
        ("record".to_owned(), Value::Text(Box::new(decoder.record()))),
        size("vocab", decoder.vocab())?,
        size("head_dim", decoder.head_dim())?,
        size("n_kv_heads", decoder.n_kv_heads())?,
        number("norm_eps", decoder.norm_eps()),
        // An attribute, because the fuser of 2.0.1 would take over a concatenation along a constant.
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

/// The rotations, and which layer has which.
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

/// What differs between layers, besides rotations.
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
        // The number of the layer among those of its kind.
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

/// An attribute that is a size.
pub(super) fn size(name: &str, value: u64) -> Result<(String, Value)> {
    let value =
        i64::try_from(value).map_err(|_| Error::TooLarge { tensor: name.to_owned(), number: value })?;
    Ok((name.to_owned(), Value::Int(value)))
}
