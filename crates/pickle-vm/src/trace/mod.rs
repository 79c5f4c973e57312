//! Shows what a pickle does: each instruction, its effect, and stack, metastack and memo after it.
//!
//! An [`Event`] is one executed instruction as a value. Over it there are printers: [`write()`] runs the machine and shows
//! every step, for people or as JSON lines; [`dis()`] lists the instructions as `python3 -m pickletools` does; [`Summary`]
//! counts. All of them stream: they keep the machine, or less, but never the listing. Everything that comes from the pickle
//! is escaped, so that its control characters never reach a terminal.
//!
//! This crate does not know torch: the caller can supply an [annotator](Annotate) that names storages and tensors.
//!
//! Sources: the wording follows the comments in CPython's `Lib/pickletools.py`.

mod dis;
mod event;
mod json;
mod options;
mod out;
mod render;
pub(crate) mod repr;
mod step;
mod summary;
mod words;

pub use dis::dis;
pub use event::{Effect, Event};
pub use options::{Annotate, Options, TraceError, View};
pub use render::Display;
pub use step::write;
pub use summary::Summary;
