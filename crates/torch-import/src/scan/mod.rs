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
mod nested;
mod numpy;
mod operators;
mod pickle;
mod remote;
mod report;
mod scan_format;
mod scanner;
mod script;
mod tar;
mod zip_detection;

use std::path::Path;
use std::sync::Arc;

use byte_source::{MappedFile, Observer, ReadError, Source};

pub use self::report::{
    Finding, GlobalCall, GlobalUse, OmittedCounts, PicklePlace, PlaceStep, Scan, ScannedPickle,
};
use self::scanner::Scanner;
use crate::Result;
use crate::container::inflate;

/// Parts of a file that a scan reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScanDepth {
    /// The pickles and the directory of an archive, or the header of a safetensors file; other files as a whole.
    PicklesOnly,
    /// All that could hide a pickle.
    #[default]
    Everything,
    /// Everything, and the bytes of all records, whose checksums are compared.
    Checksums,
}

/// A local source that is read like a remote one: in part.
#[derive(Debug)]
struct ReadInPart(Arc<dyn Source>);

impl Source for ReadInPart {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), ReadError> {
        self.0.read_at(buffer, offset)
    }

    fn in_memory(&self) -> Option<&[u8]> {
        None
    }

    fn check_unchanged(&self) -> Result<(), ReadError> {
        self.0.check_unchanged()
    }
}

impl Scan {
    /// Scans the file at `path`. With [`ScanDepth::Checksums`], compares the checksums of all records of an archive, which reads the
    /// whole file; otherwise only those of pickles.
    ///
    /// # Errors
    /// When the file cannot be read or has a format without pickles, or `observer` cancels the work.
    pub fn file(path: &Path, depth: ScanDepth, observer: &dyn Observer) -> Result<Self> {
        Self::source(&(Arc::new(MappedFile::open(path)?) as Arc<dyn Source>), depth, observer)
    }

    /// Scans a source, as [`file`](Self::file) does. A regular source that is not in memory and has 256 KiB or more is
    /// read in part, unless checksums are to be compared: the header of a safetensors file, or the directory and all
    /// records except the storages of a zip archive, whose storages and gaps are then in [`missed`](Scan::missed),
    /// or in the notes if only pickles were asked for. Any
    /// other source that is not in memory is copied into an unlinked temporary file and scanned there.
    ///
    /// # Errors
    /// The same as for [`file`](Self::file).
    pub fn source(source: &Arc<dyn Source>, depth: ScanDepth, observer: &dyn Observer) -> Result<Self> {
        let is_local = source.in_memory().is_some();
        let in_part: Arc<dyn Source> =
            if is_local { Arc::new(ReadInPart(Arc::clone(source))) } else { Arc::clone(source) };
        let local = match depth {
            ScanDepth::Everything | ScanDepth::Checksums if is_local => Arc::clone(source),
            ScanDepth::Checksums => Arc::new(inflate::local_copy(&**source)?),
            ScanDepth::Everything | ScanDepth::PicklesOnly => {
                match remote::scan_remote(&in_part, depth, is_local, observer)? {
                    Ok(scan) => return Ok(scan),
                    Err(_) if is_local => Arc::clone(source),
                    Err(kept) => {
                        remote::reject_other_formats(&kept)?;
                        Arc::new(inflate::local_copy(&kept)?)
                    }
                }
            }
        };
        Scanner::for_source(&*local, depth == ScanDepth::Checksums, observer)?.run(&local)
    }
}
