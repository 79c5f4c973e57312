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

use mapped::MappedFile;

pub use self::report::{Call, Finding, Omitted, Place, Scan, ScannedPickle, Step, Use};
use self::scanner::Scanner;
use crate::Result;

impl Scan {
    /// Scans the file at `path`. With `checksums`, the checksums of all records of an archive are compared, which
    /// reads the whole file; else only those of pickles.
    ///
    /// # Errors
    /// When the file cannot be read, is of a kind that holds no pickles, or `stop`, which is asked before each window of
    /// 1 MiB, says so.
    pub fn file(path: &Path, checksums: bool, stop: &dyn Fn() -> bool) -> Result<Self> {
        let file = MappedFile::open(path)?;
        let scanner = Scanner::of_file(&file, checksums, stop)?;
        scanner.run(&file, path)
    }
}
