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
mod columns;
mod compressed;
mod cpython_errors;
mod decompressed;
mod documents;
mod extra_state;
mod global_uses;
mod in_part;
pub(crate) mod joblib;
mod msgpack;
mod msgpack_reader;
mod nested;
mod numpy;
mod onnx;
mod onnx_reader;
pub(crate) mod operators;
mod pickle;
mod record_names;
mod report;
mod reporting;
mod scan_format;
mod scanner;
mod script;
mod script_tokens;
mod tar;
mod text_encoding;
mod unread;
mod zip_detection;

use std::path::Path;
use std::sync::Arc;

use byte_source::{MappedFile, Observer, Source};

pub use self::documents::{CodeReference, DocumentKind};
pub use self::report::{
    Finding, GlobalCall, GlobalUse, NamedRange, OmittedCounts, PicklePlace, PlaceStep, Scan, ScannedPickle,
};
use self::scanner::Scanner;
pub use self::unread::{KIND_PEEK, UNKNOWN_KIND, is_foreign_model, unread_kind};
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

impl Scan {
    /// Scans the file at `path`. With [`ScanDepth::Checksums`], compares the checksums of all records of an archive, which reads the
    /// whole file; otherwise only those of pickles.
    ///
    /// # Errors
    /// When the file cannot be read or has a format without pickles, or `observer` cancels the work.
    pub fn file(path: &Path, depth: ScanDepth, observer: &dyn Observer) -> Result<Self> {
        Self::source(&(Arc::new(MappedFile::open(path)?) as Arc<dyn Source>), depth, observer)
    }

    /// Scans a source, as [`file`](Self::file) does. A regular source of 256 KiB or more is read in part if only pickles are asked
    /// for, or if each read is a request and no checksums are to be compared: the header of a safetensors file, or the directory and
    /// all records except the storages of a zip archive, whose storages and gaps are then in [`missed`](Scan::missed), or in the
    /// notes if only pickles were asked for. Any other source that is not in memory is copied into an unlinked temporary file and
    /// scanned there.
    ///
    /// # Errors
    /// The same as for [`file`](Self::file).
    pub fn source(source: &Arc<dyn Source>, depth: ScanDepth, observer: &dyn Observer) -> Result<Self> {
        let reads_all = match depth {
            ScanDepth::PicklesOnly => false,
            ScanDepth::Everything => !source.has_latency(),
            ScanDepth::Checksums => true,
        };
        let whole = if reads_all {
            inflate::mappable(Arc::clone(source))?
        } else {
            match in_part::scan_in_part(source, depth, observer)? {
                Ok(scan) => return Ok(scan),
                Err(kept) => {
                    if source.has_latency()
                        && let Some(scan) = in_part::scan_edges(&kept)?
                    {
                        return Ok(scan);
                    }
                    inflate::mappable(Arc::new(kept))?
                }
            }
        };
        let bytes = whole.share(0..whole.len())?;
        Scanner::for_file(&bytes, depth == ScanDepth::Checksums, observer)?.run(&whole, &bytes)
    }
}
