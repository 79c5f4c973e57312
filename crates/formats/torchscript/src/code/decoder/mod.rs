//! Runnable TorchScript modules of decoders, and their recognition in archives.

mod calling_convention;
mod flag;
mod lists;
mod module;
mod older;
mod ports;
mod positions;
mod recognise;
#[cfg(test)]
mod tests;
mod text;
mod version;

pub(super) use calling_convention::CallingConvention;
pub(super) use module::module;
pub(super) use recognise::recognise;
