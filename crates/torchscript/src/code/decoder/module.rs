//! The module that runs a decoder: its attributes and its text.

use decoder::{Assignment, Decoder, Llama3, Scaling};
use tensor::Tensor;

use super::lists::lists;
use super::{ports, text};
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
    let rope = decoder.rope();
    let scaling = match rope.scaling {
        Some(Scaling::Llama3(scaling)) => Some(scaling),
        _ => None,
    };
    let scaled = scaling.unwrap_or(Llama3::by(1.0));
    let windows = decoder.windows();
    let windowed = |layer| i64::from(windows.at(layer).is_some());
    let number = |name: &str, value| (name.to_owned(), Value::Float(value));
    let own = vec![
        ("__tensors__".to_owned(), Value::Lists(Box::new(lists(&assignment.weights)))),
        size("vocab", decoder.vocab())?,
        size("head_dim", decoder.head_dim())?,
        size("n_kv_heads", decoder.n_kv_heads())?,
        number("norm_eps", decoder.norm_eps()),
        number("rope_theta", rope.theta),
        ("rope_scaled".to_owned(), Value::Bool(scaling.is_some())),
        number("rope_factor", scaled.factor),
        number("rope_low", scaled.low),
        number("rope_high", scaled.high),
        number("rope_old", scaled.old),
        size("window", windows.size.unwrap_or(0))?,
        ("windowed".to_owned(), Value::Ints(Box::new((0..decoder.n_layers()).map(windowed).collect()))),
        // An attribute, because the fuser of 2.0.1 would take over a concatenation along a constant.
        size("cat_dim", 1)?,
    ];
    let methods = text::methods(decoder, signature);
    state::archive(tensors, decoder.architecture().class(), &methods, &text::functions(decoder), own)
}

/// An attribute that is a size.
pub(super) fn size(name: &str, value: u64) -> Result<(String, Value)> {
    let value =
        i64::try_from(value).map_err(|_| Error::TooLarge { tensor: name.to_owned(), number: value })?;
    Ok((name.to_owned(), Value::Int(value)))
}
