//! Traces and listings of the pickle in a checkpoint.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::InputSource;
use checkpoint_files::{CheckpointSources, ShardPolicy};
use pickle_vm::trace::{self, ListingOptions, PickleSummary, TraceError, TraceView};
use pickle_vm::{Heap, ObjectId};
use torch_import::{Pickles, annotate, count_tensors};

use crate::{Error, InvalidOption, Result};

/// Options for tracing a pickle.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TraceOptions {
    /// Path of a checkpoint, of a bare pickle, or of the folder of a trainer's checkpoint.
    pub input: PathBuf,
    /// The input, if it is not on this machine: a file, or a folder with a checkpoint that is a single file.
    pub source: Option<InputSource>,
    pub listing: TraceListing,
    /// Index of the pickle, counted from 0, if several follow each other; `None` for the pickle with the root object.
    pub pickle: Option<usize>,
    /// Name of the input in the listing; `None` for its path.
    pub name: Option<String>,
}

impl TraceOptions {
    /// Creates options that trace the instructions of `input` and their effects.
    pub fn new(input: impl Into<PathBuf>) -> Self {
        Self { input: input.into(), ..Self::default() }
    }
}

/// Kind of listing to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceListing {
    /// Instructions of the pickle and their effects.
    Trace {
        /// Form in which each instruction is shown.
        view: TraceView,
        /// True to print stack, memo and values in full instead of truncated.
        full: bool,
        /// Number of instructions after which to stop.
        limit: Option<u64>,
    },
    /// Counts of opcodes, globals, tensors and memo entries.
    Summary,
    /// Output of `python3 -m pickletools`.
    Disassembly,
}

impl Default for TraceListing {
    fn default() -> Self {
        Self::Trace { view: TraceView::Steps, full: false, limit: None }
    }
}

/// Writes the listing of a pickle to `out`.
///
/// # Errors
/// When the input cannot be read, its pickle is malformed, or `out` cannot be written. For a malformed pickle, the listing
/// up to the fault is written.
pub fn trace(options: &TraceOptions, out: &mut dyn Write) -> Result<()> {
    let (path, pickles) = open_pickles(&options.input, options.source.as_ref())?;
    let path = path.as_path();
    let at = |error: torch_import::Error| Error::at(path)(Error::Checkpoint(error));
    let pickle = pickles.pickle(options.pickle).map_err(at)?;
    match options.listing {
        TraceListing::Disassembly => trace::dis(pickle, out).map_err(|error| trace_error(path, error))?,
        TraceListing::Summary => {
            let summary = PickleSummary::read(pickle, &pickles.limits());
            let summary = summary.map_err(|error| Error::at(path)(Error::Pickle(error)))?;
            summary.write(count_tensors(&summary.pickle.heap), out).map_err(Error::Output)?;
        }
        TraceListing::Trace { view, full, limit } => {
            let container = pickles.container();
            let annotate = |heap: &Heap<'_>, id: ObjectId| annotate(container, heap, id);
            let file = options.name.clone().unwrap_or_else(|| path.display().to_string());
            let (file, annotate) = (Some(file.as_str()), Some(&annotate as &trace::Annotate<'_>));
            let limits = pickles.limits();
            let options = ListingOptions { view, full, limit, limits, file, annotate };
            trace::write(pickle, &options, out).map_err(|error| trace_error(path, error))?;
        }
    }
    out.flush().map_err(Error::Output)
}

/// Opens the pickles of a file, or of the file that describes the checkpoint in a folder. Returns its path with them.
///
/// # Errors
/// When the input cannot be read or has no pickle, or is a folder of which no file has the pickle of the whole checkpoint.
pub fn open_pickles(input: &Path, source: Option<&InputSource>) -> Result<(PathBuf, Pickles)> {
    let opened = |path: PathBuf, pickles: torch_import::Result<Pickles>| match pickles {
        Ok(pickles) => Ok((path, pickles)),
        Err(torch_import::Error::Map(error)) => Err(Error::Map(error)),
        Err(error) => Err(Error::at(&path)(Error::Checkpoint(error))),
    };
    let Some(source) = source else {
        output::refuse_remote(input)?;
        if !input.exists() && !input.is_symlink() {
            return Err(checkpoint_files::Error::NotFound { path: input.to_owned() }.into());
        }
        let found = if input.is_dir() { pickle_of_folder(input)? } else { None };
        let path = found.unwrap_or_else(|| input.to_owned());
        let pickles = Pickles::open(&path);
        return opened(path, pickles);
    };
    let (folder, name) = match source {
        InputSource::File(file) => return opened(input.to_owned(), Pickles::from_source(Arc::clone(file))),
        InputSource::Folder { folder, file: Some(name) } => (folder, name.clone()),
        InputSource::Folder { folder, file: None } => {
            let sources = CheckpointSources::find_source(source, ShardPolicy::ThisFileOnly)?;
            let (path, first) = (input.to_owned(), sources.files.first().cloned().unwrap_or_default());
            if sources.files.len() > 1 {
                return Err(InvalidOption::SeveralPickles { path, first }.into());
            }
            (folder, output::file_name(&first))
        }
    };
    let path = folder.path_of(&name);
    let unread = |reason| Error::unread_input(&path, reason);
    let file = folder.open(&[&name]).map_err(unread)?.into_iter().next();
    let file = file.ok_or_else(|| unread(io::Error::from(io::ErrorKind::NotFound).into()))?;
    opened(path, Pickles::from_source(file))
}

/// Returns the file with the pickle that describes a trainer's checkpoint; `None` for any other folder.
fn pickle_of_folder(folder: &Path) -> Result<Option<PathBuf>> {
    let sources = CheckpointSources::find(&[folder.to_owned()], ShardPolicy::ThisFileOnly)?;
    Ok(sources.trainer_pickle().map(Path::to_owned))
}

fn trace_error(path: &Path, error: TraceError) -> Error {
    match error {
        TraceError::Write(reason) => Error::Output(reason),
        TraceError::Pickle(reason) => Error::at(path)(Error::Pickle(reason)),
        error => Error::at(path)(Error::Listing(error)),
    }
}
