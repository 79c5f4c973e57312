//! Moves files from a carton into a folder that many cartons share.

use std::fs::File;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use byte_source::{Action, FileError, Location, Observer, ProgressReporter, WINDOW, hex};
use carton_format::{Carton, CartonEntry, Config, TensorIndex};
use carton_writer::write_carton;
use output::{IfExists, OutputFile};
use serde::Serialize;

use crate::error::{at, copying};
use crate::kept_entry::{self, KeptEntry, is_manifest_or_links};
use crate::open::open_packed;
use crate::{Error, Problem, Result, SCHEMA_VERSION};

/// Options for shrinking a carton.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[non_exhaustive]
pub struct ShrinkOptions {
    /// The carton.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub file: Location,
    /// The URL under which the blobs will be served
    #[cfg_attr(feature = "cli", arg(long, value_name = "URL"))]
    pub base: String,
    /// The folder for the blobs
    #[cfg_attr(feature = "cli", arg(long, value_name = "DIR"))]
    pub blobs: PathBuf,
    /// Keep smaller files in the carton
    #[cfg_attr(feature = "cli", arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = open::parse_size))]
    pub min_size: u64,
    /// Where to write the carton
    #[cfg_attr(feature = "cli", arg(short, long, value_name = "CARTON"))]
    pub output: PathBuf,
    /// Treatment of an existing file at the output path.
    #[cfg_attr(feature = "cli", command(flatten))]
    pub if_exists: IfExists,
    /// True if `output` may be `file`, which is then replaced as a whole.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub in_place: bool,
}

impl ShrinkOptions {
    /// Creates options that move files of 4 KiB or more from `file` into `blobs`.
    pub fn new(
        file: impl Into<Location>,
        output: impl Into<PathBuf>,
        base: &str,
        blobs: impl Into<PathBuf>,
    ) -> Self {
        Self {
            file: file.into(),
            output: output.into(),
            if_exists: IfExists::default(),
            base: base.to_owned(),
            blobs: blobs.into(),
            min_size: 4096,
            in_place: false,
        }
    }
}

/// Size of the smaller carton, and the files that were moved out of it.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ShrinkReport {
    /// Version of the report's format.
    pub schema_version: u32,
    /// Path of the carton, as the caller gave it.
    pub file: String,
    /// Path of the smaller carton.
    pub output: String,
    /// Size of the smaller carton in bytes.
    pub nbytes: u64,
    /// SHA-256 of MANIFEST, which stays the same.
    pub manifest_sha256: String,
    /// Number of files moved.
    pub moved_files: usize,
    /// Total size of the moved files in bytes.
    pub moved_nbytes: u64,
    /// Folder with the blobs.
    pub blobs: String,
}

/// Moves the large files of a carton into a folder, and lists their URLs in the carton's LINKS.
///
/// # Errors
/// Returns an error if the carton cannot be read or is damaged, an existing blob is damaged, the outputs cannot be written,
/// or `observer` stops the work. No carton is left then. Complete blobs stay, because other cartons may already link to
/// them. If the folder of the blobs cannot be synced to disk, the blobs just written are removed.
pub fn shrink(options: &ShrinkOptions, observer: &dyn Observer) -> Result<ShrinkReport> {
    let base = base_url(&options.base)?;
    output::refuse_remote_output(&options.blobs)?;
    let file = options.file.path();
    let carton = open_packed(&options.file)?;
    let inputs = if options.in_place { &[][..] } else { &[file] };
    output::check_target(&options.output, inputs, options.if_exists)?;
    std::fs::create_dir_all(&options.blobs)
        .map_err(|reason| FileError::Create { path: options.blobs.clone(), reason })?;
    let mut links = carton.links().clone();
    let mut absent = kept_entry::absent_files(&carton)?;
    let mut kept = Vec::new();
    let (mut moved_files, mut moved_nbytes) = (0_usize, 0_u64);
    let mut new = Vec::new();
    for entry in carton.entries().filter(|entry| !is_manifest_or_links(&entry.path)) {
        if stays_in_carton(entry, options.min_size) {
            kept.push(KeptEntry::new(&carton, entry, observer)?);
            continue;
        }
        let hash = carton.manifest().and_then(|manifest| manifest.hash(&entry.path));
        let unlisted = || carton_format::Problem::Unlisted { path: entry.path.clone() };
        let hash = hash.ok_or_else(|| at(file)(unlisted()))?;
        let name = hex(&hash);
        let blob = options.blobs.join(&name);
        if write_blob(&carton, entry, &blob, observer)? {
            new.push(blob);
        }
        links.add(hash, format!("{base}/{name}"));
        absent.push((entry.path.clone(), hash));
        moved_files = moved_files.saturating_add(1);
        moved_nbytes = moved_nbytes.saturating_add(entry.len);
    }
    // After a power failure, no carton may exist without its blobs.
    if let Err(error) = output::sync_folder(&options.blobs) {
        for blob in new {
            let _ = std::fs::remove_file(blob);
        }
        return Err(error);
    }
    let links = if absent.is_empty() { None } else { Some(links.to_toml()?) };
    let files = kept.iter().map(KeptEntry::file).collect();
    let shrunk = carton_writer::CartonLayout { files, absent, links };
    let check_inputs = || carton.check_unchanged();
    let written = write_carton(&shrunk, &options.output, options.if_exists, &check_inputs, observer)?;
    Ok(ShrinkReport {
        schema_version: SCHEMA_VERSION,
        file: file.display().to_string(),
        output: options.output.display().to_string(),
        nbytes: written.len,
        manifest_sha256: hex(&written.manifest_hash),
        moved_files,
        moved_nbytes,
        blobs: options.blobs.display().to_string(),
    })
}

/// Validates the URL below which blobs will be served, and removes trailing slashes.
///
/// # Errors
/// When it is not an http or https URL, or has a query or a fragment.
pub fn base_url(text: &str) -> Result<&str, Problem> {
    let base = text.trim_end_matches('/');
    let fits = url::Url::parse(base).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.query().is_none()
            && url.fragment().is_none()
    });
    if fits { Ok(base) } else { Err(Problem::BaseUrl { url: text.to_owned() }) }
}

/// Returns true if an entry stays in the carton: a document, since the documents describe the carton, a link, or a small
/// file.
fn stays_in_carton(entry: &CartonEntry, min_size: u64) -> bool {
    let is_document = [Config::PATH, TensorIndex::PATH].contains(&entry.path.as_str());
    is_document || entry.is_symbolic_link || entry.len < min_size
}

/// Writes a file of the carton to `target`; false if the blob already exists.
fn write_blob(carton: &Carton, entry: &CartonEntry, target: &Path, observer: &dyn Observer) -> Result<bool> {
    let work = ProgressReporter::new(observer, &entry.path, Action::Write, Some(entry.len));
    if target.symlink_metadata().is_ok() {
        let found = target.metadata().map_err(at(target))?.len();
        if found != entry.len {
            return Err(Problem::BlobLength { path: target.to_owned(), found, expected: entry.len }.into());
        }
        return check_blob(carton, entry, target, work).map(|()| false);
    }
    let mut output = OutputFile::create(target, entry.len)?;
    carton.copy(&entry.path, &mut output, work).map_err(copying(carton.path(), target))?;
    output.commit_unsynced(IfExists::Replace)?;
    Ok(true)
}

/// Checks that an existing blob has the bytes of the carton's file.
fn check_blob(carton: &Carton, entry: &CartonEntry, target: &Path, work: ProgressReporter<'_>) -> Result<()> {
    let failed = at::<Error>(carton.path());
    let mut ours = carton.read(&entry.path).map_err(&failed)?;
    let mut theirs = File::open(target).map_err(at(target))?;
    let mut buffer = vec![0; WINDOW];
    let mut done = 0_u64;
    loop {
        let window = ours.fill_buf().map_err(|error| failed(carton.reader_error(&entry.path, error)))?;
        if window.is_empty() {
            return Ok(());
        }
        let len = window.len();
        // A window has at most as many bytes as the buffer.
        let other = buffer.get_mut(..len).unwrap_or_default();
        theirs.read_exact(other).map_err(at(target))?;
        if window != other {
            return Err(Problem::BlobDamaged { path: target.to_owned() }.into());
        }
        ours.consume(len);
        done = done.saturating_add(len as u64);
        work.advance(done)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_http_urls_have_blobs_below_them() {
        assert_eq!(base_url("https://a.b/c//").ok(), Some("https://a.b/c"));
        for url in ["", "a.b/c", "ftp://a.b", "https://a.b/?x", "https://a.b/#x"] {
            assert!(matches!(base_url(url), Err(Problem::BaseUrl { .. })), "{url}");
        }
    }
}
