//! Scans a file for the code that Python's own unpickler would execute: finds every pickle in the file, the globals
//! that it names, and their calls.
//!
//! Unlike the checkpoint readers, a scan continues after an error: it looks for damage and ambiguity. Parts that cannot
//! be read to the end are reported.
//!
//! Facts: `torch/serialization.py` of PyTorch 2.15, `caffe2/serialize/inline_container.cc`, `Lib/pickle.py`.

mod archive;
mod budget;
mod code;
mod compressed;
mod cpython_errors;
pub(crate) mod joblib;
mod operators;
mod pickle;
mod remote;
mod report;
mod scanner;
mod script;
mod tar;
mod zip_detection;

use std::path::Path;
use std::sync::Arc;

use byte_source::{MappedFile, Observer, Source};

pub use self::report::{
    Finding, GlobalCall, GlobalUse, OmittedCounts, PicklePlace, PlaceStep, Scan, ScannedPickle,
};
use self::scanner::Scanner;
use crate::Result;
use crate::container::inflate;

impl Scan {
    /// Scans the file at `path`. With `checksums`, compares the checksums of all records of an archive, which reads the
    /// whole file; otherwise only those of pickles.
    ///
    /// # Errors
    /// When the file cannot be read or has a format without pickles, or `observer` cancels the work.
    pub fn file(path: &Path, checksums: bool, observer: &dyn Observer) -> Result<Self> {
        Self::source(&(Arc::new(MappedFile::open(path)?) as Arc<dyn Source>), checksums, observer)
    }

    /// Scans a source, as [`file`](Self::file) does. A regular source that is not in memory and has 256 KiB or more is
    /// read in part, unless `checksums` are to be compared: the header of a safetensors file, or the directory and all
    /// records except the storages of a zip archive, whose storages and gaps are then in [`missed`](Scan::missed). Any
    /// other source that is not in memory is copied into an unlinked temporary file and scanned there.
    ///
    /// # Errors
    /// The same as for [`file`](Self::file).
    pub fn source(source: &Arc<dyn Source>, checksums: bool, observer: &dyn Observer) -> Result<Self> {
        let local = match source.in_memory() {
            Some(_) => Arc::clone(source),
            None if checksums => Arc::new(inflate::local_copy(&**source)?),
            None => match remote::scan_remote(source, observer)? {
                Ok(scan) => return Ok(scan),
                Err(kept) => Arc::new(inflate::local_copy(&kept)?),
            },
        };
        Scanner::for_source(&*local, checksums, observer)?.run(&local)
    }
}
