//! What a listing prints: each instruction, what it does, and stack, metastack and memo after it.
//!
//! Three doors: [`write()`] runs the machine and shows every step, for people or as JSON lines; [`dis()`] lists the
//! instructions as `python3 -m pickletools` does; [`Summary`] counts. All of them stream: they hold the machine, or
//! less, and never the listing. Whatever comes from the pickle is escaped, so that no control character in it reaches a
//! terminal.
//!
//! This crate knows nothing of torch: an [annotator](Annotate) that the caller supplies names storages and tensors.
//!
//! Sources: the words are those of the comments in CPython's `Lib/pickletools.py`.

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
