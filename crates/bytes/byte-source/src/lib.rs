//! Byte streams of any length in constant memory: a file mapped read-only, and the [`Blob`]s and [`Sink`]s between
//! which bytes flow in [`Window`]s of at most [`WINDOW`] bytes.
//!
//! Random access to small parts of a file reads the map. Bulk reads use windows at explicit positions (pread(2))
//! instead: if another program truncates the file, such a read returns an error, while the system kills a program that
//! touches a lost page of a map.

mod blob;
mod buffer;
mod cores;
mod crc32;
mod damage;
mod error;
mod error_kind;
mod file;
mod freed_memory;
mod lazy_file;
mod local_store;
mod location;
mod memory_store;
mod number_text;
mod observer;
mod prefetched;
mod region;
mod sha256;
mod source;
mod stamp;
mod store;
mod stores;

pub use blob::{Blob, OwnedBlob, Sink, Window};
pub use buffer::WINDOW;
pub use cores::{core_share, on_all_cores, set_core_share};
pub use crc32::Crc32;
pub use damage::{NotRepresentable, RecordDamaged};
pub use error::{Detail, Error, Place, Result};
pub use error_kind::ErrorKind;
pub use file::{FileError, MappedFile, special_file_kind};
pub use freed_memory::{on_memory_freed, release_freed, report_memory_freed};
pub use lazy_file::LazyFile;
pub use local_store::LocalStore;
pub use location::{Folder, Location};
pub use memory_store::MemoryStore;
pub use number_text::{format_bytes, format_count, format_things, group_thousands};
pub use observer::{Action, CancellableSink, Cancelled, Notice, Observer, ProgressReporter, ProgressUpdate};
pub use prefetched::Prefetched;
pub use region::Region;
pub use sha256::{Sha256, hex, sha256};
pub use source::{
    BufferSource, Checks, OpenedFile, SeekableSource, Source, SourceReader, each_window, map_file,
    map_file_lazily, share_start, slice_range, window_ranges, window_ranges_of,
};
pub use stamp::{FileChange, FileChanged};
pub use store::{FileStat, Listing, Replaced, Stat, Store, Upload};
pub use stores::Stores;

/// Name of the program, which is the comment of the archives that it writes.
pub const PRODUCER: &str = "torch2carton";
