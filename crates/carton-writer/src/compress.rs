//! Compression of files before the carton is laid out, because the layout needs their lengths.
//!
//! The compressed bytes are kept in an unlinked temporary file, so that memory stays small.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use byte_source::{Blob, Crc32, MappedFile, ProgressReporter, Region, Sha256, Sink, Source, WINDOW, Window};
use flate2::write::DeflateEncoder;
use zip_format::{CompressedContent, CompressionMethod, EntryContent};

/// Compression level: Zstandard's own default.
const ZSTD_LEVEL: i32 = 3;
/// A file is compressed if that saves at least one of every `MIN_SAVING_DIVISOR` bytes.
const MIN_SAVING_DIVISOR: u64 = 16;
/// Length in bytes of the sample at the start of a file that decides whether to compress the rest.
const SAMPLE_LEN: u64 = 4 * WINDOW as u64;

/// Compression method for one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    Deflate,
    /// A single Zstandard frame.
    Zstd,
    /// Zstandard if it saves enough, otherwise no compression.
    ZstdIfSmaller,
}

/// An unlinked temporary file that holds all compressed files, one after the other, so that only one file is open.
#[derive(Debug)]
pub struct CompressionSpill {
    file: File,
    len: u64,
}

/// A compressed file: its range in the temporary file, and the length and hashes of the original.
#[derive(Clone, Debug)]
pub struct CompressedFile {
    range: Range<u64>,
    method: CompressionMethod,
    len: u64,
    crc: u32,
    sha256: [u8; 32],
}

impl CompressionSpill {
    /// Creates the temporary file in `folder`.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn create(folder: &Path) -> io::Result<Self> {
        Ok(Self { file: tempfile::tempfile_in(folder)?, len: 0 })
    }

    /// Compresses `blob`; `None` if too little is saved. `work` is told how many bytes are read.
    ///
    /// # Errors
    /// When the blob cannot be read or the temporary file cannot be written.
    pub fn compress(
        &mut self,
        blob: &dyn Blob,
        compression: Compression,
        work: ProgressReporter<'_>,
    ) -> Result<Option<CompressedFile>, byte_source::Error> {
        let picky = compression == Compression::ZstdIfSmaller;
        let start = self.len;
        // Overwrites the data of a file whose compression was abandoned.
        self.file.set_len(start)?;
        self.file.seek(SeekFrom::Start(start))?;
        let (method, encoder) = match compression {
            Compression::Deflate => {
                let encoder = DeflateEncoder::new(&self.file, flate2::Compression::default());
                (CompressionMethod::Deflated, Encoder::Deflate(encoder))
            }
            Compression::Zstd | Compression::ZstdIfSmaller => {
                let mut encoder = zstd::stream::write::Encoder::new(&self.file, ZSTD_LEVEL)?;
                encoder.set_pledged_src_size(Some(blob.len()))?;
                encoder.include_contentsize(true)?;
                (CompressionMethod::Zstd, Encoder::Zstd(encoder))
            }
        };
        let mut packer = CompressingSink {
            encoder,
            crc: Crc32::default(),
            sha256: Sha256::default(),
            len: 0,
            requires_saving: picky,
            is_abandoned: false,
            out: &self.file,
            start,
            work,
        };
        if let Err(error) = blob.write_to(&mut packer) {
            return if packer.is_abandoned { Ok(None) } else { Err(error) };
        }
        let (crc, sha256, len) = (packer.crc.sum(), packer.sha256.digest(), packer.len);
        match packer.encoder {
            Encoder::Deflate(encoder) => encoder.finish()?,
            Encoder::Zstd(encoder) => encoder.finish()?,
        };
        let end = (&self.file).stream_position()?;
        if picky && !saves_enough(len, end.saturating_sub(start)) {
            return Ok(None);
        }
        self.len = end;
        Ok(Some(CompressedFile { range: start..end, method, len, crc, sha256 }))
    }

    /// Returns all compressed data, ready to be written.
    ///
    /// # Errors
    /// When the temporary file cannot be mapped.
    pub fn finish(self) -> io::Result<CompressedFiles> {
        self.file.set_len(self.len)?;
        let file =
            MappedFile::from_file(&self.file, Path::new("a temporary file")).map_err(io::Error::other)?;
        Ok(CompressedFiles(Arc::new(file)))
    }
}

/// Finished contents of a [`CompressionSpill`].
#[derive(Debug)]
pub struct CompressedFiles(Arc<dyn Source>);

impl CompressedFiles {
    /// Returns the compressed bytes of a file.
    pub fn compressed_bytes(&self, compressed: &CompressedFile) -> Region {
        // The range lies in the temporary file, because the spill wrote it.
        Region::new(&self.0, compressed.range.clone()).unwrap_or_else(|| Region::whole(&self.0))
    }
}

impl CompressedFile {
    /// Returns the SHA-256 of the bytes before compression.
    pub fn sha256(&self) -> [u8; 32] {
        self.sha256
    }

    /// Returns the content of the file's zip entry; `blob` is its [`part`](CompressedFiles::compressed_bytes).
    pub fn content<'b>(&self, blob: &'b dyn Blob) -> EntryContent<'b> {
        EntryContent::Packed(CompressedContent { blob, method: self.method, len: self.len, crc: self.crc })
    }
}

/// Returns true if compressing `len` bytes to `packed` bytes saves enough.
fn saves_enough(len: u64, packed: u64) -> bool {
    packed.saturating_add(len / MIN_SAVING_DIVISOR) < len
}

enum Encoder<'o> {
    Deflate(DeflateEncoder<&'o File>),
    Zstd(zstd::stream::write::Encoder<'static, &'o File>),
}

struct CompressingSink<'o> {
    encoder: Encoder<'o>,
    crc: Crc32,
    sha256: Sha256,
    len: u64,
    requires_saving: bool,
    /// True if the sample did not save enough.
    is_abandoned: bool,
    out: &'o File,
    /// Offset of the file's data in the temporary file.
    start: u64,
    work: ProgressReporter<'o>,
}

impl Sink for CompressingSink<'_> {
    fn write(&mut self, window: Window) -> Result<(), byte_source::Error> {
        self.crc.add(&window);
        self.sha256.update(&window);
        match &mut self.encoder {
            Encoder::Deflate(encoder) => encoder.write_all(&window)?,
            Encoder::Zstd(encoder) => encoder.write_all(&window)?,
        }
        let before = self.len;
        self.len = self.len.saturating_add(window.len() as u64);
        if self.requires_saving && before < SAMPLE_LEN && self.len >= SAMPLE_LEN {
            if let Encoder::Zstd(encoder) = &mut self.encoder {
                encoder.flush()?;
            }
            if !saves_enough(self.len, self.out.metadata()?.len().saturating_sub(self.start)) {
                self.is_abandoned = true;
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        Ok(self.work.advance(self.len)?)
    }
}
