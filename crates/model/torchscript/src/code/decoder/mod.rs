//! Runnable TorchScript modules of decoders.

mod calling_convention;
mod flag;
mod lists;
mod module;
mod ports;
mod positions;
#[cfg(test)]
mod tests;
mod text;

pub(super) use calling_convention::CallingConvention;
pub(super) use module::{decoder_archive, module};
