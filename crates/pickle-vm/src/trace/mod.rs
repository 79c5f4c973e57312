//! Traces of a pickle's execution: each instruction, its effect, and stack, metastack and memo after it.
//!
//! An [`TraceEvent`] is one executed instruction as a value. Three printers use it: [`write()`] runs the machine and prints
//! every step, as text or as JSON lines; [`dis()`] lists the instructions as `python3 -m pickletools` does; [`PickleSummary`]
//! counts opcodes and globals. All of them stream: they keep at most the machine, never the listing. All text from the
//! pickle is escaped, so that its control characters never reach a terminal.
//!
//! This crate does not know PyTorch: the caller can supply an [annotator](Annotate) that names storages and tensors.
//!
//! Source: the wording follows the comments in CPython's `Lib/pickletools.py`.

mod dis;
mod effect_text;
mod event;
mod json;
mod listing_writer;
mod options;
mod recording;
mod render;
pub(crate) mod repr;
mod steps;
mod summary;

pub use dis::dis;
pub use event::{Effect, TraceEvent};
pub use options::{Annotate, ListingOptions, TraceError, TraceView};
pub use recording::{MachineState, RecordedStep, Recording, StackChange, record};
pub use render::ObjectDisplay;
pub use steps::write;
pub use summary::PickleSummary;
