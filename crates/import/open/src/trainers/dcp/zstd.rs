//! Compressed parts, decompressed into one unlinked temporary file.
//!
//! Facts: the class `ZStandard` in `torch/distributed/checkpoint/_extension.py` of PyTorch 2.15, which compresses each part
//! on its own.

use std::fs::File;
use std::io::{Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use byte_source::{MappedFile, Source, SourceReader, WINDOW};
use foldhash::{HashMap, HashMapExt};
use torch_import::Problem::TemporaryFile;

use super::metadata::PartPlace;
use crate::trainers::Result;

/// Descriptor of the only transformation that PyTorch has.
pub(super) const ZSTD: &str = "stream.zstd/1";

/// Bytes that an archive has besides the elements of its tensor.
const ARCHIVE_MAX: u64 = 1 << 20;
/// Bytes to which a value may decompress, and the ratio for all parts. Moments of an optimizer that are all zero compress
/// by 10,000 and more, so the size of a tensor limits its parts.
const VALUE_MAX: u64 = 256 << 20;
const RATIO_MAX: u64 = 1 << 16;
/// Largest window of a frame, as a power of two: the largest that the reference decoder accepts unasked.
const WINDOW_LOG_MAX: u32 = 27;

/// Decompressed parts, by file and offset.
#[derive(Debug, Default)]
pub(super) struct DecompressedParts {
    out: Option<File>,
    len: u64,
    ranges: HashMap<(String, u64), Range<u64>>,
    source: Option<Arc<dyn Source>>,
}

impl DecompressedParts {
    pub(super) fn create() -> Result<Self> {
        let out = tempfile::tempfile().map_err(TemporaryFile)?;
        Ok(Self { out: Some(out), len: 0, ranges: HashMap::new(), source: None })
    }

    /// Decompresses a part. A part of a tensor has at most the tensor's bytes, `nbytes`, and those of an archive.
    pub(super) fn add(
        &mut self,
        name: &str,
        place: &PartPlace<'_>,
        source: &dyn Source,
        range: Range<u64>,
        nbytes: Option<u64>,
    ) -> Result<()> {
        let fail = |reason: String| place.error(name, format!("cannot be decompressed: {reason}"));
        let Some(out) = &mut self.out else { return Err(fail("there is no temporary file".to_owned())) };
        let limit = nbytes.map_or(VALUE_MAX, |nbytes| nbytes.saturating_add(ARCHIVE_MAX));
        let limit = limit.min(place.len.saturating_mul(RATIO_MAX));
        let mut decoder = zstd::stream::read::Decoder::new(SourceReader::new(source, range))
            .map_err(|error| fail(error.to_string()))?;
        decoder.window_log_max(WINDOW_LOG_MAX).map_err(|error| fail(error.to_string()))?;
        let mut decoder = decoder.take(limit.saturating_add(1));
        let mut window = vec![0; WINDOW];
        let mut len = 0_u64;
        loop {
            let count = decoder.read(&mut window).map_err(|error| fail(error.to_string()))?;
            if count == 0 {
                break;
            }
            len = len.saturating_add(count as u64);
            out.write_all(window.get(..count).unwrap_or_default()).map_err(TemporaryFile)?;
        }
        if len > limit {
            return Err(fail(format!("it has more than {limit} bytes")));
        }
        let start = self.len;
        self.len = self.len.saturating_add(len);
        self.ranges.insert((place.file.to_string(), place.offset), start..self.len);
        Ok(())
    }

    /// Maps the temporary file.
    pub(super) fn finish(&mut self) -> Result<()> {
        let Some(out) = self.out.take() else { return Ok(()) };
        self.source = Some(Arc::new(MappedFile::from_file(&out, Path::new("the decompressed parts"))?));
        Ok(())
    }

    /// Returns the decompressed bytes of a part; `None` if it is not compressed.
    pub(super) fn find(&self, place: &PartPlace<'_>) -> Option<(Arc<dyn Source>, Range<u64>)> {
        if place.transforms.is_empty() {
            return None;
        }
        let range = self.ranges.get(&(place.file.to_string(), place.offset))?.clone();
        Some((Arc::clone(self.source.as_ref()?), range))
    }
}
