//! Compares checkpoints and cartons: one digest for equal tensors, and a list of what differs.
//!
//! Inputs are opened, and their tensors selected, as a conversion does it.

mod bytes;
pub(crate) mod diff;
pub(crate) mod diff_options;
pub(crate) mod digest;
mod fingerprint;
pub(crate) mod input;
mod matching;
pub(crate) mod numbers;
pub(crate) mod rearrangement;
pub(crate) mod report;
mod segments;
mod values;

/// Version of the format of the reports of comparisons.
const SCHEMA_VERSION: u32 = 1;
