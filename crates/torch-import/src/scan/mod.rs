//! What a file would execute if Python's own unpickler loaded it: every pickle in the file, and what it names and
//! calls.
//!
//! Unlike the checkpoint readers, a scan does not stop at an error: it looks for damage and ambiguity. What it cannot
//! read to the end is reported.
//!
//! Facts: `torch/serialization.py` of PyTorch 2.15, `caffe2/serialize/inline_container.cc`, `Lib/pickle.py`.

mod archive;
mod budget;
mod code;
mod doubt;
pub(crate) mod joblib;
mod operators;
mod packed;
mod pickle;
mod recognise;
mod remote;
mod report;
mod scanner;
mod script;
mod tar;

use std::path::Path;
use std::sync::Arc;

use byte_source::{MappedFile, Observer, Source};

pub use self::report::{Call, Finding, Omitted, Place, Scan, ScannedPickle, Step, Use};
use self::scanner::Scanner;
use crate::Result;
use crate::container::inflate;

impl Scan {
    /// Scans the file at `path`. With `checksums`, the checksums of all records of an archive are compared, which
    /// reads the whole file; else only those of pickles.
    ///
    /// # Errors
    /// When the file cannot be read, is of a kind that holds no pickles, or `observer` stops the work.
    pub fn file(path: &Path, checksums: bool, observer: &dyn Observer) -> Result<Self> {
        Self::source(&(Arc::new(MappedFile::open(path)?) as Arc<dyn Source>), checksums, observer)
    }

    /// Scans a source, as [`file`](Self::file) does. Of a zip archive that is not in memory and has 256 KiB or more, the
    /// directory and all records but the storages are read, unless there are `checksums` to compare: the storages and the gaps are then
    /// in [`missed`](Scan::missed). Of a safetensors file, the header is read. Everything else is copied into an unlinked
    /// temporary file and scanned there.
    ///
    /// # Errors
    /// The same.
    pub fn source(source: &Arc<dyn Source>, checksums: bool, observer: &dyn Observer) -> Result<Self> {
        let local = match source.in_memory() {
            Some(_) => Arc::clone(source),
            None if checksums => Arc::new(inflate::local_copy(&**source)?),
            None => match remote::scan(source, observer)? {
                Ok(scan) => return Ok(scan),
                Err(kept) => Arc::new(inflate::local_copy(&kept)?),
            },
        };
        Scanner::of_source(&*local, checksums, observer)?.run(&local)
    }
}
