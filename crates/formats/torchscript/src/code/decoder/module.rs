//! Module that runs a decoder: its attributes and its source text.

use decoder::{Assignment, Decoder};
use tensor::{Dtype, Tensors};

use super::flag::Variant;
use super::lists::lists;
use super::ports;
use super::positions::Positions;
use super::signature::Signature;
use super::text;
use super::version::Version;
use crate::archive::Archive;
use crate::code::state;
use crate::module::Value;
use crate::{Code, Module, Note, Outputs, Result, Returns};

/// Makes a module that computes `logits`, float32 \[batch, seq, vocab\], from `tokens`, int64 \[batch, seq\]. With
/// `keep_extra`, unused tensors stay in its `state_dict`.
///
/// # Errors
/// Returns an error if the tensors do not match the decoder, or TorchScript cannot express a name, a tensor or a size.
pub(in crate::code) fn module(
    decoder: &Decoder,
    tensors: &Tensors,
    keep_extra: bool,
    signature: Signature,
) -> Result<Module> {
    let assignment = decoder.assign(tensors, keep_extra)?;
    let version = &text::VERSION;
    let record = decoder.record(version.number);
    let (archive, more) = archive(version, signature, (decoder, &record), &assignment, tensors)?;
    let notes = assignment.notes.into_iter().map(Note::Decoder).chain(more).collect();
    let (mut inputs, mut outputs) = ports::ports(decoder);
    if signature == Signature::Positional {
        inputs.retain(|port| !port.optional);
        outputs.retain(|port| !port.optional);
    }
    let outputs = Outputs(Returns::Ports(outputs));
    Ok(Module { archive, inputs, outputs, notes, code: Code::Decoder(Box::new(decoder.clone())) })
}

/// Makes the archive of a decoder with this record, and notes about it.
pub(super) fn archive(
    version: &Version,
    signature: Signature,
    (decoder, record): (&Decoder, &str),
    assignment: &Assignment,
    tensors: &Tensors,
) -> Result<(Archive, Vec<Note>)> {
    let lists = lists(&assignment.weights);
    let positions = Positions::new(decoder);
    let mut dtypes = assignment.weights.iter().filter_map(|weight| Some(weight.tensor(tensors)?.dtype()));
    let has_half = dtypes.any(|dtype| dtype == Dtype::Float16);
    let variant = Variant { decoder, positions: &positions, lists: &lists, has_half, signature };
    let (methods, functions) = (version.methods(variant), version.functions(variant));
    let attributes = (version.attributes)(decoder, &positions)?;
    let lists = Box::new(lists);
    let lists = if has_half { Value::Half(lists) } else { Value::Lists(lists) };
    let mut own = vec![
        ("__tensors__".to_owned(), lists),
        ("record".to_owned(), Value::Text(Box::new(record.to_owned()))),
    ];
    own.extend(attributes);
    state::archive(tensors, decoder.architecture().class(), &methods, &functions, own)
}
