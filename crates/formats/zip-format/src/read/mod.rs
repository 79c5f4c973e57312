//! Reads zip directories.

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
pub use survey::{Oddity, Survey};
