//! Writes zip files.

mod record;
mod writer;

pub use writer::{CompressedContent, EntryContent, LayoutBuilder, NewZipEntry, ZipLayout, ZipWriter, layout};
