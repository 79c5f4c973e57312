//! Module that runs a decoder: its attributes and its source text.

use std::borrow::Cow;

use decoder::{AssignedWeight, Assignment, Decoder};
use tensor::{Dtype, Tensors};

use super::calling_convention::CallingConvention;
use super::flag::TextVariant;
use super::lists::group_weights;
use super::ports;
use super::positions::RotaryPositions;
use super::text;
use crate::archive::ScriptArchive;
use crate::code::state_dict_tree::{self, OwnAttributes};
use crate::module_tree::AttributeValue;
use crate::{Module, ModuleCode, ModuleNote, ModuleOutputs, OutputPorts, Result};

/// Class of the object that Python calls, in the attribute `forward` of the module.
const ENTRY_CLASS: &str = "Entry";

/// Makes a module that computes `logits`, float32 \[batch, seq, vocab\], from `tokens`, int64 \[batch, seq\]. With
/// `keep_extra`, unused tensors stay in its `state_dict`, also those that text does not go through.
///
/// # Errors
/// Returns an error if the tensors do not match the decoder, or TorchScript cannot express a name, a tensor or a size.
pub(in crate::code) fn module(
    decoder: &Decoder,
    tensors: &Tensors,
    keep_extra: bool,
    signature: CallingConvention,
) -> Result<Module> {
    let (text, left_out) = decoder.without_other_parts(tensors).filter(|_| !keep_extra).unzip();
    let tensors = text.as_ref().unwrap_or(tensors);
    let mut assignment = decoder.assign(tensors, keep_extra)?;
    assignment.notes.extend(left_out);
    let (archive, more) = decoder_archive(decoder, signature, &assignment, tensors)?;
    let notes = assignment.notes.into_iter().map(ModuleNote::Decoder).chain(more).collect();
    let (mut inputs, mut outputs) = ports::ports(decoder);
    if signature == CallingConvention::Positional {
        inputs.retain(|port| !port.optional);
        outputs.retain(|port| !port.optional);
    }
    let outputs = ModuleOutputs(OutputPorts::Ports(outputs));
    Ok(Module { archive, inputs, outputs, notes, code: ModuleCode::Decoder(Box::new(decoder.clone())) })
}

pub(in crate::code) fn decoder_archive(
    decoder: &Decoder,
    signature: CallingConvention,
    assignment: &Assignment,
    tensors: &Tensors,
) -> Result<(ScriptArchive, Vec<ModuleNote>)> {
    let (weights, tensors) = &with_blocks(&assignment.weights, tensors);
    let lists = group_weights(weights);
    let positions = RotaryPositions::new(decoder);
    let has =
        |dtype| weights.iter().any(|weight| weight.tensor(tensors).is_some_and(|it| it.dtype() == dtype));
    let has_blocks = has(Dtype::UInt8);
    // If some are blocks, the text converts each weight when it is used.
    let has_float16 = has(Dtype::Float16) && !has_blocks;
    let variant =
        TextVariant { decoder, positions: &positions, lists: &lists, has_float16, has_blocks, signature };
    let (methods, functions) = (text::methods(variant), text::functions(variant));
    let entry = text::entry_methods(variant).map(|methods| (ENTRY_CLASS, methods));
    let attributes = text::attributes(decoder, &positions)?;
    let lists = Box::new(lists);
    let lists = if has_float16 { AttributeValue::Half(lists) } else { AttributeValue::Lists(lists) };
    let mut own = vec![
        ("__tensors__".to_owned(), lists),
        ("record".to_owned(), AttributeValue::Text(Box::new(decoder.record(text::CODE_VERSION)))),
    ];
    own.extend(attributes);
    state_dict_tree::state_dict_archive(
        tensors,
        decoder.architecture().class(),
        &methods,
        &functions,
        OwnAttributes { values: own, entry },
    )
}

/// Returns the weights and tensors as the module stores them: numbers that are kept as blocks of `Q8_0` as bytes, unless a weight is a
/// part of one whose rows are not whole blocks.
fn with_blocks<'t>(
    weights: &'t [AssignedWeight],
    tensors: &'t Tensors,
) -> (Cow<'t, [AssignedWeight]>, Cow<'t, Tensors>) {
    let as_they_are = (Cow::Borrowed(weights), Cow::Borrowed(tensors));
    if !tensors.iter().any(|(_, tensor)| tensor.kept_q8_0_blocks().is_some()) {
        return as_they_are;
    }
    let (mut weights, mut stored) = (weights.to_vec(), tensors.clone());
    for (_, tensor) in stored.tensors_mut() {
        *tensor = tensor.kept_q8_0_blocks().unwrap_or_else(|| tensor.clone());
    }
    for AssignedWeight { index, view, .. } in &mut weights {
        let is_blocks = stored.get_index(*index).is_some_and(|(_, tensor)| tensor.dtype() == Dtype::UInt8);
        if let Some(view) = view.as_mut().filter(|_| is_blocks) {
            let Some(blocks) = view.kept_q8_0_blocks() else { return as_they_are };
            *view = blocks;
        }
    }
    (weights.into(), Cow::Owned(stored))
}
