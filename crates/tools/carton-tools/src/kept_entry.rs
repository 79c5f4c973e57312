//! Copies files of a carton unchanged into another carton.

use byte_source::{Action, Observer, ProgressReporter};
use carton_format::{Carton, CartonEntry, CompressionMethod, Links, Manifest};
use carton_writer::{CartonMember, EntryContent};
use tensor::Storage;
use zip_format::CompressedContent;

use crate::error::at;
use crate::{Error, Problem, Result};

/// Entry of a packed carton, with the data for writing it again.
pub(crate) struct KeptEntry<'c> {
    path: &'c str,
    sha256: Option<[u8; 32]>,
    bytes: Storage,
    kind: KeptKind,
}

enum KeptKind {
    Stored,
    Packed(CompressionMethod, u64, u32),
    Link(Vec<u8>),
}

impl<'c> KeptEntry<'c> {
    /// Reads the entry. A compressed entry is checked here, a stored one while it is written.
    pub(crate) fn new(carton: &'c Carton, entry: &'c CartonEntry, observer: &dyn Observer) -> Result<Self> {
        let failed = at::<Error>(carton.path());
        let path = entry.path.as_str();
        let outside = || carton_format::Problem::Missing { path: path.to_owned() };
        let sha256 = carton.manifest().and_then(|manifest| manifest.hash(path));
        let (region, crc) = carton.stored_data(path).ok_or_else(|| failed(outside().into()))?;
        let packed = |method| -> Result<KeptKind> {
            let work = ProgressReporter::new(observer, path, Action::Verify, Some(entry.len));
            carton.copy(path, &mut std::io::sink(), work).map_err(&failed)?;
            Ok(KeptKind::Packed(method, entry.len, crc))
        };
        let kind = match entry.method {
            _ if entry.is_symbolic_link => {
                carton.link_target(entry).map_err(&failed)?;
                KeptKind::Link(carton.link_text(entry).map_err(&failed)?.into_bytes())
            }
            CompressionMethod::Stored => KeptKind::Stored,
            method @ (CompressionMethod::Deflated | CompressionMethod::Zstd) => packed(method)?,
            CompressionMethod::Other(method) => {
                return Err(failed(carton_format::Problem::Method { path: path.to_owned(), method }.into()));
            }
        };
        Ok(Self { path, sha256, bytes: Storage::stored(region, None), kind })
    }

    pub(crate) fn file(&self) -> CartonMember<'_> {
        let content = match &self.kind {
            KeptKind::Stored => EntryContent::Blob(&self.bytes),
            KeptKind::Packed(method, len, crc) => EntryContent::Packed(CompressedContent {
                blob: &self.bytes,
                method: *method,
                len: *len,
                crc: *crc,
            }),
            KeptKind::Link(target) => EntryContent::Link(target),
        };
        CartonMember { path: self.path.to_owned(), content, sha256: self.sha256 }
    }
}

/// Returns true for MANIFEST and LINKS, which are written anew.
pub(crate) fn is_manifest_or_links(path: &str) -> bool {
    [Manifest::PATH, Links::PATH].contains(&path)
}

/// Returns paths and hashes of the files that are not in the carton.
///
/// # Errors
/// Returns an error if LINKS lacks one of these files.
pub(crate) fn absent_files(carton: &Carton) -> Result<Vec<(String, [u8; 32])>> {
    let absent = carton.absent();
    for (path, _) in &absent {
        if let Err(carton_format::Problem::Missing { path: entry }) = carton.entry(path) {
            return Err(at(carton.path())(Problem::NotLinked { entry }));
        }
    }
    Ok(absent)
}
