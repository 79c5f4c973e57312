//! Writer of zip files whose layout is computed before they are written: all lengths are known in advance, only
//! checksums are not.
//!
//! Entries are stored, or were compressed earlier, so their lengths are known. Data can start at multiples of an
//! alignment, padded with the extra field that PyTorch uses (`FB`, filled with `Z`). Small contents have their CRC in
//! the local header; blobs have a zero CRC in the local header, flag bit 3, and a data descriptor after the data, so
//! that one pass over a blob is enough. Times are constant: equal contents give equal bytes.
//!
//! Facts: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 to 4.5.

mod record;
mod writer;

pub use writer::{
    CompressedContent, CompressionMethod, EntryContent, LayoutBuilder, NewZipEntry, ZipLayout, ZipWriter,
    layout,
};
