//! Converts PyTorch checkpoints into cartons that run, without Python and without executing anything from the file.

#[cfg(feature = "cli")]
pub mod cli;
