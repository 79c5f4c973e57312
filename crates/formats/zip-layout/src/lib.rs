//! Zip files laid out before they are written: every length is known up front, only checksums are not.
//!
//! Entries are stored, or were compressed earlier, so their lengths are known. Data can start at multiples of an
//! alignment, padded with the extra field that PyTorch uses (`FB`, filled with `Z`). Small contents have their CRC in
//! the local header; blobs have a zero there, bit 3, and a data descriptor after the data, so that one pass over them is
//! enough. Times are zero: the same contents give the same bytes.
//!
//! Facts: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 to 4.5.

mod record;
mod writer;

pub use writer::{Content, Entry, Layout, Method, Packed, Plan, ZipWriter, layout};
