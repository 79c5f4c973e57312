//! A decoder's forward pass on the CPU over weights that stay in the file they are mapped from.
//!
//! `kernel/` has the matrix products. Weights are never converted up front: a product widens them to f32 as it reads them.

mod error;
#[allow(dead_code, reason = "the decoder that uses it is not written yet")]
mod kernel;

pub use error::{Error, Result};
