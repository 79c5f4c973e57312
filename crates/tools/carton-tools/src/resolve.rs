//! Fetches the files that a carton leaves out, and writes a complete carton.

use byte_source::{Observer, hex};
use carton_writer::{CartonLayout, CartonMember, EntryContent, write_carton};
use serde::Serialize;

use crate::cache::{AbsentFile, DownloadCache};
use crate::kept_entry::{self, KeptEntry, is_manifest_or_links};
use crate::open::open_packed;
use crate::{CartonNote, Error, ResolveOptions, Result, SCHEMA_VERSION};

/// Size of the complete carton, and the number of files and bytes that were fetched.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ResolveReport {
    /// Version of the report's format.
    pub schema_version: u32,
    /// Path of the carton, as the caller gave it.
    pub file: String,
    /// Path of the complete carton.
    pub output: String,
    /// Size of the complete carton in bytes.
    pub nbytes: u64,
    /// SHA-256 of MANIFEST, which stays the same.
    pub manifest_sha256: String,
    /// Number of files that were not in the carton.
    pub fetched_files: usize,
    /// Decoded bytes that were downloaded. Files in the cache are not counted.
    pub downloaded_nbytes: u64,
    pub notes: Vec<CartonNote>,
}

/// Fetches the files that a carton leaves out, and writes a carton that holds all of its files.
///
/// # Errors
/// Returns an error if the carton cannot be read or is damaged, a file cannot be fetched, the output cannot be written, or
/// `observer` stops the work. No output is left then. A cache folder keeps the downloads.
pub fn resolve(options: &ResolveOptions, observer: &dyn Observer) -> Result<ResolveReport> {
    let file = options.file.path();
    let carton = open_packed(&options.file)?;
    output::check_target(&options.output, &[file], options.if_exists)?;
    let absent = kept_entry::absent_files(&carton)?;
    let cache = DownloadCache::open(options, observer)?;
    let mut notes = Vec::new();
    let mut downloaded_nbytes = 0_u64;
    let mut fetched = Vec::with_capacity(absent.len());
    for (path, sha256) in &absent {
        let wanted = AbsentFile { entry: path, sha256: *sha256, urls: carton.links().urls(sha256) };
        let got = cache.fetch(&wanted)?;
        downloaded_nbytes = downloaded_nbytes.saturating_add(got.downloaded);
        notes.extend(got.replaced.map(|path| CartonNote::DownloadedAgain { path }));
        fetched.push((path, *sha256, got.file));
    }
    let kept = carton.entries().filter(|entry| !is_manifest_or_links(&entry.path));
    let kept =
        kept.map(|entry| KeptEntry::new(&carton, entry, observer)).collect::<Result<Vec<_>, Error>>()?;
    let mut files: Vec<CartonMember<'_>> = kept.iter().map(KeptEntry::file).collect();
    files.extend(fetched.iter().map(|(path, sha256, file)| CartonMember {
        path: (*path).to_owned(),
        content: EntryContent::Blob(file),
        sha256: Some(*sha256),
    }));
    // The model comes last, so that the documents are near the start of the file.
    files.sort_by_key(|file| (file.path.starts_with(carton_format::MODEL_FOLDER), file.path.clone()));
    let check_inputs = || carton.check_unchanged();
    let whole = CartonLayout::new(files);
    let written = write_carton(&whole, &options.output, options.if_exists, &check_inputs, observer)?;
    Ok(ResolveReport {
        schema_version: SCHEMA_VERSION,
        file: file.display().to_string(),
        output: options.output.display().to_string(),
        nbytes: written.len,
        manifest_sha256: hex(&written.manifest_hash),
        fetched_files: absent.len(),
        downloaded_nbytes,
        notes,
    })
}
