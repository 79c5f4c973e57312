//! Files compressed before they are laid out: their length must be known first.
//!
//! The compressed bytes wait in an unlinked temporary file, so that memory stays small.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use flate2::write::DeflateEncoder;
use mapped::{Blob, MappedFile, Sink, WINDOW, Window};
use sha2::{Digest, Sha256};
use zip_layout::{Content, Method, Packed};

/// Zstandard's own default.
const ZSTD_LEVEL: i32 = 3;
/// A file is compressed where that saves at least one byte in so many.
const SAVING: u64 = 16;
/// Bytes at the start of a file that tell whether the rest is worth the try.
const SAMPLE: u64 = 4 * WINDOW as u64;

/// How to compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Deflate.
    Deflate,
    /// One Zstandard frame.
    Zstd,
    /// Zstandard where it saves something, nothing where it does not.
    Worthwhile,
}

/// A file's bytes, compressed.
#[derive(Debug)]
pub struct Compressed {
    file: MappedFile,
    method: Method,
    len: u64,
    crc: u32,
    sha256: [u8; 32],
}

impl Compressed {
    /// Compresses `blob` into a temporary file in `folder`; `None` when nothing worthwhile is saved.
    /// `progress` is told the bytes that were read so far.
    ///
    /// # Errors
    /// When the blob cannot be read or the temporary file cannot be written.
    pub fn of(
        blob: &dyn Blob<'_>,
        compression: Compression,
        folder: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> io::Result<Option<Self>> {
        let out = tempfile::tempfile_in(folder)?;
        let (method, picky) = match compression {
            Compression::Deflate => (Method::Deflated, false),
            Compression::Zstd => (Method::Zstd, false),
            Compression::Worthwhile => (Method::Zstd, true),
        };
        let copy = out.try_clone()?;
        let encoder = match method {
            Method::Deflated => Encoder::Deflate(DeflateEncoder::new(copy, flate2::Compression::default())),
            Method::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(copy, ZSTD_LEVEL)?;
                encoder.set_pledged_src_size(Some(blob.len()))?;
                encoder.include_contentsize(true)?;
                Encoder::Zstd(encoder)
            }
        };
        let mut packer = Packer {
            encoder,
            crc: crc32fast::Hasher::new(),
            sha256: Sha256::new(),
            len: 0,
            picky,
            given_up: false,
            out: &out,
            progress,
        };
        if let Err(error) = blob.write_to(&mut packer) {
            return if packer.given_up { Ok(None) } else { Err(error) };
        }
        let (crc, sha256, len) = (packer.crc.finalize(), packer.sha256.finalize().into(), packer.len);
        match packer.encoder {
            Encoder::Deflate(encoder) => encoder.finish()?,
            Encoder::Zstd(encoder) => encoder.finish()?,
        };
        let file = MappedFile::of(&out, folder).map_err(io::Error::other)?;
        if picky && !saves(len, file.len()) {
            return Ok(None);
        }
        Ok(Some(Self { file, method, len, crc, sha256 }))
    }

    /// The bytes before compression, hashed.
    pub fn sha256(&self) -> [u8; 32] {
        self.sha256
    }

    /// The compressed bytes.
    pub fn file(&self) -> &MappedFile {
        &self.file
    }

    /// What an entry holds; `blob` is [`file`](Self::file).
    pub fn content<'b, 'a>(&self, blob: &'b dyn Blob<'a>) -> Content<'b, 'a> {
        Content::Packed(Packed { blob, method: self.method, len: self.len, crc: self.crc })
    }
}

/// Whether so many bytes become few enough.
fn saves(len: u64, packed: u64) -> bool {
    packed.saturating_add(len / SAVING) < len
}

enum Encoder {
    Deflate(DeflateEncoder<File>),
    Zstd(zstd::stream::write::Encoder<'static, File>),
}

struct Packer<'o, 'p> {
    encoder: Encoder,
    crc: crc32fast::Hasher,
    sha256: Sha256,
    len: u64,
    picky: bool,
    /// Whether the sample saved nothing.
    given_up: bool,
    out: &'o File,
    progress: &'p mut dyn FnMut(u64),
}

impl<'a> Sink<'a> for Packer<'_, '_> {
    fn write(&mut self, window: Window<'a>) -> io::Result<()> {
        self.crc.update(&window);
        self.sha256.update(&*window);
        match &mut self.encoder {
            Encoder::Deflate(encoder) => encoder.write_all(&window)?,
            Encoder::Zstd(encoder) => encoder.write_all(&window)?,
        }
        let before = self.len;
        self.len = self.len.saturating_add(window.len() as u64);
        if self.picky && before < SAMPLE && self.len >= SAMPLE {
            if let Encoder::Zstd(encoder) = &mut self.encoder {
                encoder.flush()?;
            }
            if !saves(self.len, self.out.metadata()?.len()) {
                self.given_up = true;
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        (self.progress)(self.len);
        Ok(())
    }
}
