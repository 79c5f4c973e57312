//! Bytes of any size in constant memory: a file mapped read-only, and the [`Blob`]s and [`Sink`]s
//! through which bytes flow in [`Window`]s of at most [`WINDOW`] bytes.
//!
//! The advice follows madvise(2): `MADV_POPULATE_READ` (Linux 5.14) brings a window in with one call
//! and reports a file that shrank as an error instead of a signal; `MADV_DONTNEED` gives its pages
//! back, so that a file far larger than memory passes through a few megabytes of it.

mod blob;
mod cancel;
mod file;
mod sha256;
mod unopened;

pub use blob::{Blob, OwnedBlob, Sink, WINDOW, Window};
pub use cancel::{Cancelled, Progress};
pub use file::{Error, MappedFile};
pub use sha256::{Sha256Sink, hex};
pub use unopened::UnopenedFile;
