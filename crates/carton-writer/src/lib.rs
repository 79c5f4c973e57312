//! Writes a carton in one pass: every byte is read once, and is hashed on a second thread while it is written into the
//! zip file.
//!
//! The lower bound is the time for SHA-256 of the largest file, because one file's hash is serial; the checksum, the
//! copy and the write happen in parallel. At most `QUEUE` windows of 1 MiB are in flight.
//!
//! ```
//! use carton_format::{Config, MODEL_PT, Runner, TensorIndex};
//! use carton_writer::{CartonLayout, CartonMember, EntryContent};
//! use byte_source::{OwnedBlob, ProgressReporter};
//!
//! let config = Config::new(Runner::new("torchscript", "=2.0", 1)).to_toml()?;
//! let index = TensorIndex::default().to_toml()?;
//! // Any `Blob` works: a mapped file, a strided tensor, a whole TorchScript archive.
//! let model = OwnedBlob(b"weights".to_vec());
//! let carton = CartonLayout::new(vec![
//!     CartonMember::new(Config::PATH, EntryContent::Bytes(config.as_bytes())),
//!     CartonMember::new(TensorIndex::PATH, EntryContent::Bytes(index.as_bytes())),
//!     CartonMember::new(MODEL_PT, EntryContent::Blob(&model)),
//! ]);
//! let mut out = Vec::new();
//! let written = carton.write(&mut out, ProgressReporter::unobserved())?;
//! assert_eq!(out.len() as u64, written.len);
//! assert_eq!(written.len, carton.len()?); // which was known in advance
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Facts: the Carton v1 specification. Its zip entries are stored unless a [`CompressionSpill`] compressed them, and data
//! start at multiples of [`ALIGNMENT`] bytes, so that a TorchScript archive with equally aligned records can be mapped
//! directly from the carton. The comment of the zip file names this program, so that it can tell its own files from
//! others.

mod compress;
mod file;
mod hash;

use std::io;

use byte_source::{Blob, FileError, PRODUCER, ProgressReporter, Sha256, Sink, Window, details};
use carton_format::{Links, Manifest};
use zip_format::{LayoutBuilder, NewZipEntry, ZipWriter};

pub use crate::compress::{CompressedFile, CompressedFiles, Compression, CompressionSpill};
pub use crate::file::write_carton;
use crate::hash::Hasher;
pub use byte_source::{Error, Result};
pub use zip_format::EntryContent;

/// Alignment in bytes of every file's data in a carton.
pub const ALIGNMENT: u64 = 64;
/// Maximum number of windows queued for hashing.
const QUEUE: usize = 8;

/// Reason why a carton cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A file whose SHA-256 differs from the expected one.
    #[error("`{}` has SHA-256 {found}, expected {expected}", path.escape_debug())]
    Hash {
        /// Path in the carton.
        path: String,
        /// SHA-256 of the file's bytes.
        found: String,
        expected: String,
    },
}

details! {
    Problem {
        Damaged: Hash;
    }
}

/// A file of a carton with its path.
pub struct CartonMember<'b> {
    /// Path in the carton, such as `model/model.pt`.
    pub path: String,
    pub content: EntryContent<'b>,
    /// SHA-256 of the file, if already known. Bytes and blobs are compared with it while they are written; for compressed
    /// content it is trusted, and for a link it is the hash of the link's target.
    pub sha256: Option<[u8; 32]>,
}

/// The files of a carton, both in its zip file and left out of it.
#[derive(Default)]
pub struct CartonLayout<'b> {
    /// The files in the zip file.
    pub files: Vec<CartonMember<'b>>,
    /// Paths and hashes of the files that are left out of the zip file but listed in MANIFEST.
    pub absent: Vec<(String, [u8; 32])>,
    /// Text of LINKS, with the URLs of the files that are left out.
    pub links: Option<String>,
}

/// Result of writing a carton.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenCarton {
    /// Length of the carton in bytes.
    pub len: u64,
    /// SHA-256 of MANIFEST, which is called the model's hash.
    pub manifest_hash: [u8; 32],
}

impl<'b> CartonLayout<'b> {
    /// Creates a carton that holds all of its files.
    pub fn new(files: Vec<CartonMember<'b>>) -> Self {
        Self { files, absent: Vec::new(), links: None }
    }

    /// Returns true if the carton has no files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.absent.is_empty()
    }

    /// Returns the MANIFEST with the known hashes, and zeros for the rest.
    fn manifest(&self) -> Result<Manifest> {
        let mut manifest = Manifest::default();
        for (path, sha256) in &self.absent {
            manifest.add(path, *sha256)?;
        }
        for file in &self.files {
            manifest.add(&file.path, file.sha256.unwrap_or_default())?;
        }
        Ok(manifest)
    }

    fn links_entry(&self) -> Option<NewZipEntry<'_>> {
        self.links.as_ref().map(|text| aligned_entry(Links::PATH, EntryContent::Bytes(text.as_bytes())))
    }

    /// Returns the length in bytes of the carton that [`write`](Self::write) makes.
    ///
    /// # Errors
    /// When the files do not make a carton.
    pub fn len(&self) -> Result<u64> {
        let manifest = self.manifest()?.to_string();
        let manifest = aligned_entry(Manifest::PATH, EntryContent::Bytes(manifest.as_bytes()));
        let mut plan = LayoutBuilder::default();
        for entry in self.files.iter().map(CartonMember::entry).chain([manifest]).chain(self.links_entry()) {
            plan.add(&entry)?;
        }
        Ok(plan.finish_with_comment(PRODUCER)?)
    }

    /// Writes the files, their MANIFEST and LINKS as one zip file to `out`. `work` is told after each window how many bytes
    /// are written.
    ///
    /// # Errors
    /// When the files do not make a carton, a hash differs from the expected one, a source cannot be
    /// read, `out` fails ([`FileError::Output`]), or the observer stops the work.
    pub fn write(&self, out: &mut dyn io::Write, work: ProgressReporter<'_>) -> Result<WrittenCarton> {
        // Names are checked before the first byte is written.
        self.manifest()?;
        let out = &mut CartonSink { out: io::BufWriter::new(out), work, len: 0 };
        std::thread::scope(|scope| {
            let hasher = Hasher::start(scope, QUEUE);
            let mut zip = ZipWriter::new(out);
            let mut manifest = Manifest::default();
            for (path, sha256) in &self.absent {
                manifest.add(path, *sha256)?;
            }
            for file in &self.files {
                let hash = match file.content {
                    EntryContent::Bytes(bytes) => {
                        zip.add(&file.entry())?;
                        Sha256::of(bytes)
                    }
                    EntryContent::Blob(blob) => {
                        let tapped = HashedBlob { blob, hasher: &hasher };
                        zip.add(&NewZipEntry { content: EntryContent::Blob(&tapped), ..file.entry() })?;
                        hasher.finish()?
                    }
                    EntryContent::Packed(_) | EntryContent::Link(_) => {
                        zip.add(&file.entry())?;
                        file.sha256.ok_or_else(|| {
                            let text = "a compressed file without its hash";
                            Error::from(io::Error::new(io::ErrorKind::InvalidInput, text))
                        })?
                    }
                };
                if let Some(expected) = file.sha256
                    && expected != hash
                {
                    let (found, expected) = (byte_source::hex(&hash), byte_source::hex(&expected));
                    return Err(Problem::Hash { path: file.path.clone(), found, expected }.into());
                }
                manifest.add(&file.path, hash)?;
            }
            let manifest = manifest.to_string();
            zip.add(&aligned_entry(Manifest::PATH, EntryContent::Bytes(manifest.as_bytes())))?;
            if let Some(links) = self.links_entry() {
                zip.add(&links)?;
            }
            zip.finish_with_comment(PRODUCER)?;
            io::Write::flush(&mut out.out).map_err(unwritten)?;
            Ok(WrittenCarton { len: out.len, manifest_hash: Sha256::of(manifest.as_bytes()) })
        })
    }
}

fn unwritten(reason: io::Error) -> FileError {
    FileError::Output { what: "the carton", reason }
}

fn aligned_entry<'b>(name: &'b str, content: EntryContent<'b>) -> NewZipEntry<'b> {
    NewZipEntry { name, alignment: ALIGNMENT, content }
}

impl<'b> CartonMember<'b> {
    /// Creates a file whose hash is not known yet.
    pub fn new(path: &str, content: EntryContent<'b>) -> Self {
        Self { path: path.to_owned(), content, sha256: None }
    }

    fn entry(&self) -> NewZipEntry<'_> {
        aligned_entry(&self.path, self.content)
    }
}

/// Blob that sends its bytes to the hasher while they are written.
struct HashedBlob<'b, 'h> {
    blob: &'b dyn Blob,
    hasher: &'h Hasher,
}

impl Blob for HashedBlob<'_, '_> {
    fn len(&self) -> u64 {
        self.blob.len()
    }

    fn write_to(&self, sink: &mut dyn Sink) -> Result<()> {
        self.blob.write_to(&mut HashingSink { sink, hasher: self.hasher })
    }
}

struct HashingSink<'s, 'h> {
    sink: &'s mut dyn Sink,
    hasher: &'h Hasher,
}

impl Sink for HashingSink<'_, '_> {
    fn write(&mut self, window: Window) -> Result<()> {
        self.hasher.update(window.clone())?;
        self.sink.write(window)
    }
}

/// Sink that writes the carton's bytes to the output and reports progress.
struct CartonSink<'o> {
    out: io::BufWriter<&'o mut dyn io::Write>,
    work: ProgressReporter<'o>,
    len: u64,
}

impl Sink for CartonSink<'_> {
    fn write(&mut self, window: Window) -> Result<()> {
        io::Write::write_all(&mut self.out, &window).map_err(unwritten)?;
        self.len = self.len.saturating_add(window.len() as u64);
        Ok(self.work.advance(self.len)?)
    }
}
