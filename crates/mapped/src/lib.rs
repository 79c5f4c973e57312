//! Bytes of any size in constant memory: a file mapped read-only, and the [`Blob`]s and [`Sink`]s
//! through which bytes flow in [`Window`]s of at most [`WINDOW`] bytes.
//!
//! Whatever looks at a file in many places reads the map. Whatever passes on many of its bytes reads windows at their
//! positions instead (pread(2)): if another program cuts the file short, such a read reports it, while the system ends
//! a program that touches a page of a map that is gone.

mod blob;
mod buffer;
mod cancel;
mod crc32;
mod file;
mod heap;
mod sha256;
mod stamp;
mod unopened;

pub use blob::{Blob, OwnedBlob, Sink, Window};
pub use buffer::WINDOW;
pub use cancel::{Cancelled, Progress};
pub use crc32::Crc32;
pub use file::{Error, FileReader, MappedFile};
pub use heap::release_freed;
pub use sha256::{Sha256Sink, hex};
pub use stamp::{Change, Changed};
pub use unopened::UnopenedFile;

/// The program's name, which marks the files that it writes.
pub const PRODUCER: &str = "torch2carton";
