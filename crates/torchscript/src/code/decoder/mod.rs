//! Decoders as TorchScript modules that run.

mod module;
mod ports;
mod recognise;
#[cfg(test)]
mod tests;
mod text;

pub(super) use module::{Signature, module};
pub(super) use recognise::recognise;
