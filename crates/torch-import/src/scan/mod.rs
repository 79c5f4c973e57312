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
mod report;
mod scanner;
mod script;
mod tar;

use std::path::Path;
use std::sync::Arc;

use mapped::{MappedFile, Observer, Source};

pub use self::report::{Call, Finding, Omitted, Place, Scan, ScannedPickle, Step, Use};
use self::scanner::Scanner;
use crate::{Container, Result};

impl Scan {
    /// Scans the file at `path`. With `checksums`, the checksums of all records of an archive are compared, which
    /// reads the whole file; else only those of pickles.
    ///
    /// # Errors
    /// When the file cannot be read, is of a kind that holds no pickles, or `observer` stops the work.
    pub fn file(path: &Path, checksums: bool, observer: &dyn Observer) -> Result<Self> {
        Self::source(&(Arc::new(MappedFile::open(path)?) as Arc<dyn Source>), checksums, observer)
    }

    /// Scans a source, as [`file`](Self::file) does.
    ///
    /// # Errors
    /// The same.
    pub fn source(source: &Arc<dyn Source>, checksums: bool, observer: &dyn Observer) -> Result<Self> {
        let local = Container::local(Arc::clone(source))?;
        Scanner::of_source(&*local, checksums, observer)?.run(&local)
    }
}
