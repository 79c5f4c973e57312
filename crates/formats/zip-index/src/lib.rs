//! A strict index of a zip file: the central directory, checked against every local header.
//!
//! Two readers of one zip file must not see different contents. This index rejects ambiguities that common readers
//! silently accept: duplicate names, overlapping entries, local headers that disagree with the directory, sizes past
//! the end of the file, bytes before the first or after the last record.
//!
//! Facts: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 to 4.5.

mod entry;
mod error;
mod flaw;
mod index;
mod lazy;
mod record;
mod survey;

pub use entry::Entry;
pub use error::{Error, Result};
pub use flaw::{Flaw, flaws};
pub use index::ZipIndex;
pub use record::CompressionMethod;
pub use survey::{Oddity, Survey};
