//! Zip files: a strict index of an existing file, and a writer whose layout is computed before it writes.
//!
//! Two readers of one zip file must not see different contents. [`ZipIndex`] checks the central directory against every local
//! header, and rejects ambiguities that common readers silently accept: duplicate names, overlapping entries, local headers
//! that disagree with the directory, sizes past the end of the file, bytes before the first or after the last record.
//! [`Survey`] lists what is in a file that the index rejects.
//!
//! [`LayoutBuilder`] places entries whose lengths are known in advance; only checksums are not. Data can start at multiples of
//! an alignment, padded with the extra field that PyTorch uses (`FB`, filled with `Z`). Small contents have their CRC in the
//! local header; blobs have a zero CRC in the local header, flag bit 3, and a data descriptor after the data, so that one pass
//! over a blob is enough. Times are constant: equal contents give equal bytes.
//!
//! Facts: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 to 4.5.

mod method;
mod read;
mod write;

pub use method::CompressionMethod;
pub use read::{Entry, Error, Flaw, Oddity, Result, Survey, ZipIndex, flaws};
pub use write::{CompressedContent, EntryContent, LayoutBuilder, NewZipEntry, ZipLayout, ZipWriter, layout};
