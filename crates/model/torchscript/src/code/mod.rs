//! Modules made of tensors: a decoder that runs, or weights that are returned by name.

mod attributes;
mod decoder;
pub(crate) mod recognise;
mod state_dict_tree;
pub(crate) mod weights;

use ::decoder::{Decoder, DecoderOptions, Detected};
use tensor::Tensors;

use crate::{Module, ModuleCode, ModuleNote, OnInvalidInput, Result};
use decoder::CallingConvention;

/// Makes a module of the architecture `name`, whose `forward` takes tokens and returns logits.
///
/// # Errors
/// Returns the errors of [`decoder::named`](::decoder::build_decoder), and an error if a tensor is missing, is not used, or has the
/// wrong shape or a dtype that is not a floating-point number.
pub fn decoder_module(
    name: &str,
    tensors: &Tensors,
    options: &DecoderOptions,
    errors: OnInvalidInput,
) -> Result<Module> {
    decoder::module(
        &::decoder::build_decoder(name, tensors, options)?,
        tensors,
        options.keep_extra,
        CallingConvention::Dict(errors),
    )
}

/// Makes a module that runs `decoder`, whose `forward` takes `tokens`, int64 \[batch, seq\], as its only argument and
/// returns the logits, float32 \[batch, seq, vocab\]. With `keep_extra`, unused tensors stay in its `state_dict`. Invalid
/// inputs raise an exception, whose message Triton returns to the client.
///
/// # Errors
/// Returns the same errors as [`decoder_module`].
pub fn positional_decoder_module(decoder: &Decoder, tensors: &Tensors, keep_extra: bool) -> Result<Module> {
    decoder::module(decoder, tensors, keep_extra, CallingConvention::Positional)
}

/// Makes the module that the tensor names and documents describe: a model, or the weights and the reason why they are not a
/// model.
///
/// # Errors
/// Returns the errors of [`decoder::detect`](::decoder::detect), [`decoder_module`] and [`weights_module`](crate::weights_module).
pub fn detect_module(tensors: &Tensors, options: &DecoderOptions, errors: OnInvalidInput) -> Result<Module> {
    match ::decoder::detect(tensors, options)? {
        Detected::Model(model) => {
            decoder::module(&model, tensors, options.keep_extra, CallingConvention::Dict(errors))
        }
        Detected::Weights { no_model_reason: why, notes } => {
            let mut module = weights::weights_module(tensors, errors)?;
            module.notes.extend(notes.into_iter().map(ModuleNote::Decoder));
            module.code = ModuleCode::Weights { why: Some(why) };
            Ok(module)
        }
    }
}
