//! Decoders as TorchScript modules that run.

mod module;
mod ports;
#[cfg(test)]
mod tests;
mod text;

pub(super) use module::module;
