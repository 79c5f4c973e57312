//! Runnable TorchScript modules of decoders, and their recognition in archives.

mod flag;
mod lists;
mod module;
mod older;
mod ports;
mod positions;
mod recognise;
mod calling_convention;
#[cfg(test)]
mod tests;
mod text;
mod version;

pub(super) use module::module;
pub(super) use recognise::recognise;
pub(super) use calling_convention::CallingConvention;
