//! Traces and listings of the pickle in a checkpoint.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use byte_source::{FileError, Location, Stat};
use open::files::{self, CheckpointSources, ShardPolicy};
use pickle_vm::trace::{self, ListingOptions, PickleSummary, TraceError, TraceView};
use pickle_vm::{Heap, ObjectId};
use torch_import::{Pickles, annotate, count_tensors};

use crate::{Error, Problem, Result};

/// Options for tracing a pickle.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TraceOptions {
    /// Checkpoint, bare pickle, or folder with a checkpoint of which one file has the pickle.
    pub input: Location,
    pub listing: TraceListing,
    /// Index of the pickle, counted from 0, if several follow each other; `None` for the pickle with the root object.
    pub pickle: Option<usize>,
    /// Name of the input in the listing; `None` for its path.
    pub name: Option<String>,
}

impl TraceOptions {
    /// Creates options that trace the instructions of `input` and their effects.
    pub fn new(input: impl Into<Location>) -> Self {
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
    let (path, pickles) = open_pickles(&options.input)?;
    let path = path.as_path();
    let at = |error: Error| error.in_file(path);
    let pickle = pickles.pickle(options.pickle).map_err(at)?;
    match options.listing {
        TraceListing::Disassembly => trace::dis(pickle, out).map_err(|error| trace_error(path, error))?,
        TraceListing::Summary => {
            let summary = PickleSummary::read(pickle, &pickles.limits());
            let summary = summary.map_err(|reason| at(Problem::Pickle { reason }.into()))?;
            summary.write(count_tensors(&summary.pickle.heap), out).map_err(unwritten)?;
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
    out.flush().map_err(unwritten)
}

/// Opens the pickles of a file, or of the file that describes the checkpoint in a folder. Returns its path with them.
///
/// # Errors
/// When the input cannot be read or has no pickle, or is a folder of which no file has the pickle of the whole checkpoint.
pub fn open_pickles(input: &Location) -> Result<(PathBuf, Pickles)> {
    let unread = |error: Error| error.in_file(input.path());
    let file = match input.stat().map_err(|reason| unread(reason.into()))? {
        Some(Stat::Folder) => pickle_of_folder(input)?,
        Some(Stat::File(_) | Stat::Other) => input.clone(),
        None => return Err(files::Problem::NotFound { path: input.path().to_owned() }.into()),
    };
    let path = file.path().to_owned();
    let source = file.open().map_err(unread)?;
    let pickles = Pickles::from_source(source);
    let pickles = pickles.map_err(|error| error.in_file(&path))?;
    Ok((path, pickles))
}

/// Returns the file with the pickle that describes the checkpoint in a folder.
///
/// # Errors
/// When there is no checkpoint, or one in several files.
fn pickle_of_folder(folder: &Location) -> Result<Location> {
    let sources = CheckpointSources::find(std::slice::from_ref(folder), ShardPolicy::ThisFileOnly)?;
    if let Some(pickle) = sources.trainer_pickle() {
        return Ok(folder.at(pickle));
    }
    match sources.files.as_slice() {
        [file] => Ok(folder.at(file)),
        files => {
            let (path, first) = (folder.path().to_owned(), files.first().cloned().unwrap_or_default());
            Err(Problem::SeveralPickles { path, first }.into())
        }
    }
}

fn trace_error(path: &Path, error: TraceError) -> Error {
    match error {
        TraceError::Write(reason) => unwritten(reason),
        TraceError::Pickle(reason) => Error::from(Problem::Pickle { reason }).in_file(path),
    }
}

/// Converts the error of the caller's writer.
pub(crate) fn unwritten(reason: io::Error) -> Error {
    FileError::Output { what: "the listing", reason }.into()
}
