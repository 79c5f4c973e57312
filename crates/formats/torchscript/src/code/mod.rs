//! Modules made of tensors: a decoder that runs, or weights that are returned by name.

mod attributes;
mod decoder;
pub(crate) mod recognise;
mod state;
pub(crate) mod weights;

use ::decoder::{Decoder, Detected, Options};
use tensor::Tensors;

use crate::{Code, Errors, Module, Note, Result};
use decoder::Signature;

/// Makes a module of the architecture `name`, whose `forward` takes tokens and returns logits.
///
/// # Errors
/// Returns the errors of [`decoder::named`](::decoder::named), and an error if a tensor is missing, is not used, or has the
/// wrong shape or a dtype that is not a floating-point number.
pub fn model(name: &str, tensors: &Tensors, options: &Options, errors: Errors) -> Result<Module> {
    decoder::module(
        &::decoder::named(name, tensors, options)?,
        tensors,
        options.keep_extra,
        Signature::Dict(errors),
    )
}

/// Makes a module that runs `decoder`, whose `forward` takes `tokens`, int64 \[batch, seq\], as its only argument and
/// returns the logits, float32 \[batch, seq, vocab\]. With `keep_extra`, unused tensors stay in its `state_dict`. Invalid
/// inputs raise an exception, whose message Triton returns to the client.
///
/// # Errors
/// Returns the same errors as [`model`].
pub fn positional(decoder: &Decoder, tensors: &Tensors, keep_extra: bool) -> Result<Module> {
    decoder::module(decoder, tensors, keep_extra, Signature::Positional)
}

/// Makes the module that the tensor names and documents describe: a model, or the weights and the reason why they are not a
/// model.
///
/// # Errors
/// Returns the errors of [`decoder::detect`](::decoder::detect), [`model`] and [`weights`](crate::weights).
pub fn auto(tensors: &Tensors, options: &Options, errors: Errors) -> Result<Module> {
    match ::decoder::detect(tensors, options)? {
        Detected::Model(model) => {
            decoder::module(&model, tensors, options.keep_extra, Signature::Dict(errors))
        }
        Detected::Weights { why, notes } => {
            let mut module = weights::weights(tensors, errors)?;
            module.notes.extend(notes.into_iter().map(Note::Decoder));
            module.code = Code::Weights { why: Some(why) };
            Ok(module)
        }
    }
}
