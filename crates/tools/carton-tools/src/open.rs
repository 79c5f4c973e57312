//! Opens cartons, and recognises files that are not cartons.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{Action, FileError, Location, MappedFile, Observer, OpenedFile, ProgressReporter, Source};
use carton_format::{Carton, Config, Manifest};
use open::files::{CheckpointSources, ShardPolicy};
use torch_import::Container;
use zip_format::ZipIndex;

use crate::error::at;
use crate::{Error, Problem, Result};

/// Returns an error if a file that the reader refuses is a checkpoint or another file, rather than a damaged carton.
pub(crate) fn not_a_carton(path: &Path) -> Option<Error> {
    if let Some(format) = checkpoint_format(path) {
        return Some(Problem::IsCheckpoint { path: path.to_owned(), format }.into());
    }
    if path.is_dir() {
        // A folder with one of the documents is a carton that lacks the other.
        let has_document = [Config::PATH, Manifest::PATH].iter().any(|name| path.join(name).exists());
        return (!has_document).then(|| not_one(path));
    }
    if !path.is_file() {
        return None;
    }
    let file = MappedFile::open(path).ok()?;
    let lists = |name| ZipIndex::directory_lists(&file, &[name]);
    let is_other = match (lists(Config::PATH), lists(Manifest::PATH)) {
        // The directory is intact, and has neither document.
        (Some(false), Some(false)) => true,
        (Some(_), _) => false,
        // A carton that is cut short, or whose directory is damaged, still starts like a zip file.
        (None, _) => !file.bytes().starts_with(b"PK") && !Carton::documents_are_in(&file),
    };
    is_other.then(|| not_one(path))
}

fn not_one(path: &Path) -> Error {
    Problem::NotACarton { path: path.to_owned() }.into()
}

/// Opens a packed or unpacked carton.
///
/// # Errors
/// Returns an error if the input cannot be read, or is not a carton. A folder that is not on this machine is not one.
pub fn open(input: &Location) -> Result<Carton> {
    let path = input.path();
    if input.is_local() {
        return open_by(path, Carton::open);
    }
    open_file(path, &file_of(input)?.ok_or_else(|| not_one(path))?)
}

/// Opens a packed or unpacked carton of this machine like [`open()`], and each file with tensors with `open_file`.
///
/// # Errors
/// Those of [`open()`], and of `open_file`.
pub fn open_with(path: &Path, open_file: fn(&Path) -> OpenedFile) -> Result<Carton> {
    open_by(path, |path| Carton::open_with(path, open_file))
}

fn open_by(path: &Path, open: impl FnOnce(&Path) -> Result<Carton>) -> Result<Carton> {
    output::refuse_remote(path)?;
    // The reader opens any folder, and a checkpoint may be a folder.
    if path.is_dir()
        && let Some(error) = not_a_carton(path)
    {
        return Err(error);
    }
    open(path).map_err(|error| {
        // If nothing was read, the file's format is unknown.
        let other = if error.detail::<FileError>().is_some() { None } else { not_a_carton(path) };
        other.unwrap_or_else(|| at(path)(error))
    })
}

/// Opens the file of a packed carton.
fn open_file(path: &Path, file: &Arc<dyn Source>) -> Result<Carton> {
    Carton::from_source(Arc::clone(file))
        .map_err(|error| other_source(file).unwrap_or_else(|| at(path)(error)))
}

/// Opens a carton to compute with its weights, which have to be in memory or mapped. One that is not on this machine is copied
/// into an unlinked temporary file.
///
/// # Errors
/// Returns an error if the carton cannot be read, there is too little space for temporary files, or `observer` stops the work.
pub fn copy_carton(input: &Location, observer: &dyn Observer) -> Result<Carton> {
    if input.is_local() {
        return open(input);
    }
    let path = input.path();
    let file = file_of(input)?.ok_or_else(|| not_one(path))?;
    open_file(path, &file)?;
    Carton::from_source(copy_file(&file, observer)?).map_err(at(path))
}

/// Opens the files directly in a folder whose names are those of packed cartons.
///
/// # Errors
/// Returns an error if the folder or a file cannot be read.
pub fn open_packed_in(folder: &Location) -> Result<Vec<Location>> {
    let listing = folder.store().list(folder.path()).map_err(Error::from)?;
    let is_named =
        |name: &&String| Path::new(name).extension().is_some_and(|extension| extension == Carton::EXTENSION);
    let files: Vec<PathBuf> =
        listing.files.iter().filter(is_named).map(|name| folder.path().join(name)).collect();
    let opened = folder.store().open(&files)?;
    Ok(opened.into_iter().map(Location::from).collect())
}

/// Checks that there is space for temporary copies of the cartons that are not on this machine, all of them together.
///
/// # Errors
/// Returns an error if a carton cannot be read, or there is too little space for temporary files.
pub fn check_copy_space<'l>(cartons: impl IntoIterator<Item = &'l Location>) -> Result<()> {
    let mut needed = 0_u64;
    for input in cartons.into_iter().filter(|input| !input.is_local()) {
        let file = file_of(input)?.ok_or_else(|| not_one(input.path()))?;
        needed = needed.saturating_add(file.len());
    }
    if needed > 0 {
        output::require_free_space(needed, &std::env::temp_dir())?;
    }
    Ok(())
}

/// Copies a file that is not on this machine into an unlinked temporary file.
pub(crate) fn copy_file(file: &Arc<dyn Source>, observer: &dyn Observer) -> Result<Arc<dyn Source>> {
    let path = file.path();
    output::require_free_space(file.len(), &std::env::temp_dir())?;
    let name = output::file_name(file.path());
    let work = ProgressReporter::new(observer, &name, Action::Download, Some(file.len()));
    let write = |reason| at(path)(carton_format::Problem::WriteOutput(reason));
    let mut copy = tempfile::tempfile().map_err(write)?;
    let mut done = 0_u64;
    for range in byte_source::window_ranges(0..file.len()) {
        let window = file.read_window(range)?;
        copy.write_all(&window).map_err(write)?;
        done = done.saturating_add(window.len() as u64);
        work.advance(done)?;
    }
    let copy = MappedFile::from_file(&copy, path)?;
    Ok(Arc::new(copy))
}

/// Opens the file of an input; returns `None` for a folder.
pub(crate) fn file_of(input: &Location) -> Result<Option<Arc<dyn Source>>> {
    if input.is_folder() { Ok(None) } else { Ok(input.open().map(Some)?) }
}

/// Returns an error if a file that is not on this machine, which the reader refuses, is a checkpoint or another file, rather than
/// a damaged carton.
pub(crate) fn other_source(file: &Arc<dyn Source>) -> Option<Error> {
    let path = file.path().to_owned();
    if let Ok(container) = Container::from_source(Arc::clone(file)) {
        return Some(Problem::IsCheckpoint { path, format: container.format() }.into());
    }
    let start = file.read_range(0..file.len().min(2)).ok()?;
    (*start != *b"PK").then(|| not_one(&path))
}

pub(crate) fn open_packed(input: &Location) -> Result<Carton> {
    let carton = open(input)?;
    if carton.is_packed() {
        Ok(carton)
    } else {
        Err(Problem::IsFolder { path: input.path().to_owned() }.into())
    }
}

/// Returns the name of the checkpoint format at `path`, a file or folder; `None` if the path is a carton or no checkpoint.
pub(crate) fn checkpoint_format(path: &Path) -> Option<&'static str> {
    if Carton::is_at(&path.into()) {
        return None;
    }
    if path.is_dir() {
        let sources = CheckpointSources::find(&[path.to_owned()], ShardPolicy::RequireAll).ok()?;
        return sources.open().ok()?.first().map(torch_import::Container::format);
    }
    Container::open(path).ok().map(|container| container.format())
}
