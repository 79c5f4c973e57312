//! Decoders as TorchScript modules that run.

mod flag;
mod lists;
mod module;
mod older;
mod ports;
mod positions;
mod recognise;
mod signature;
#[cfg(test)]
mod tests;
mod text;
mod version;

pub(super) use module::module;
pub(super) use recognise::recognise;
pub(super) use signature::Signature;
