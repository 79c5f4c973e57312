//! Decoders as TorchScript modules that run.

mod lists;
mod module;
mod older;
mod ports;
mod positions;
mod recognise;
#[cfg(test)]
mod tests;
mod text;

pub(super) use module::{Signature, module};
pub(super) use recognise::recognise;
