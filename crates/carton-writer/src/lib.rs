//! Writes a carton in one pass: every byte is read once, and on its way into the zip file it is hashed
//! on a second thread.
//!
//! The floor is SHA-256 of the largest file, since one file's hash is serial; the checksum, the copy
//! and the write happen beside it. In flight are at most [`QUEUE`] windows of 1 MiB.
//!
//! Facts: the Carton v1 specification. Its zip entries are stored, and data start at multiples of
//! [`ALIGNMENT`] bytes, so that a TorchScript archive whose own records are so aligned can be mapped
//! straight out of the carton.

mod hash;

use std::io;

use carton_format::Manifest;
use mapped::{Blob, Sink, Window};
use zip_layout::{Content, Entry, ZipWriter};

use crate::hash::{Hasher, sha256};

/// Every file of a carton starts at a multiple of this many bytes.
pub const ALIGNMENT: u64 = 64;
/// Windows that wait for the hash, at most.
const QUEUE: usize = 8;
const MANIFEST: &str = "MANIFEST";

/// Why a carton cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The files do not make a carton.
    #[error(transparent)]
    Format(#[from] carton_format::Error),
    /// A source cannot be read, or the output cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// One file of a carton, with its path inside it.
pub struct File<'b, 'a> {
    /// The path, such as `model/model.pt`.
    pub path: String,
    /// What it holds.
    pub content: Content<'b, 'a>,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes of the carton.
    pub len: u64,
    /// SHA-256 of MANIFEST: the model's hash.
    pub manifest_hash: [u8; 32],
}

/// The number of bytes of the carton that [`write`] makes of `files`.
///
/// # Errors
/// When the files do not make a carton.
pub fn len(files: &[File<'_, '_>]) -> Result<u64, Error> {
    let mut manifest = Manifest::default();
    for file in files {
        manifest.add(&file.path, [0; 32])?;
    }
    let manifest = manifest.to_string();
    let last = Entry { name: MANIFEST, alignment: ALIGNMENT, content: Content::Bytes(manifest.as_bytes()) };
    Ok(zip_layout::len(files.iter().map(File::entry).chain([last]))?)
}

/// Writes `files` and their MANIFEST as one zip file to `out`. `progress` is told the bytes written so
/// far, window by window.
///
/// # Errors
/// When the files do not make a carton, a source cannot be read, or `out` refuses.
pub fn write(
    files: &[File<'_, '_>],
    out: &mut dyn io::Write,
    progress: &mut dyn FnMut(u64),
) -> Result<Written, Error> {
    std::thread::scope(|scope| {
        let hasher = Hasher::start(scope, QUEUE);
        let mut out = Output { out: io::BufWriter::new(out), progress, len: 0 };
        let mut zip = ZipWriter::new(&mut out);
        let mut manifest = Manifest::default();
        for file in files {
            let hash = match file.content {
                Content::Bytes(bytes) => {
                    zip.add(&file.entry())?;
                    sha256(bytes)
                }
                Content::Blob(blob) => {
                    let tapped = Hashed { blob, hasher: &hasher };
                    zip.add(&Entry { content: Content::Blob(&tapped), ..file.entry() })?;
                    hasher.finish()?
                }
            };
            manifest.add(&file.path, hash)?;
        }
        let manifest = manifest.to_string();
        let content = Content::Bytes(manifest.as_bytes());
        zip.add(&Entry { name: MANIFEST, alignment: ALIGNMENT, content })?;
        zip.finish()?;
        io::Write::flush(&mut out.out)?;
        Ok(Written { len: out.len, manifest_hash: sha256(manifest.as_bytes()) })
    })
}

impl<'a> File<'_, 'a> {
    fn entry(&self) -> Entry<'_, 'a> {
        Entry { name: &self.path, alignment: ALIGNMENT, content: self.content }
    }
}

/// A blob whose bytes are hashed as they pass.
struct Hashed<'b, 'h, 'a> {
    blob: &'b dyn Blob<'a>,
    hasher: &'h Hasher<'a>,
}

impl<'a> Blob<'a> for Hashed<'_, '_, 'a> {
    fn len(&self) -> u64 {
        self.blob.len()
    }

    fn write_to(&self, sink: &mut dyn Sink<'a>) -> io::Result<()> {
        self.blob.write_to(&mut Tee { sink, hasher: self.hasher })
    }
}

struct Tee<'s, 'h, 'a> {
    sink: &'s mut dyn Sink<'a>,
    hasher: &'h Hasher<'a>,
}

impl<'a> Sink<'a> for Tee<'_, '_, 'a> {
    fn write(&mut self, window: Window<'a>) -> io::Result<()> {
        self.hasher.update(window.clone())?;
        self.sink.write(window)
    }
}

/// The carton's bytes on their way into the file.
struct Output<'o, 'p> {
    out: io::BufWriter<&'o mut dyn io::Write>,
    progress: &'p mut dyn FnMut(u64),
    len: u64,
}

impl<'a> Sink<'a> for Output<'_, '_> {
    fn write(&mut self, window: Window<'a>) -> io::Result<()> {
        io::Write::write_all(&mut self.out, &window)?;
        self.len = self.len.saturating_add(window.len() as u64);
        (self.progress)(self.len);
        Ok(())
    }
}
