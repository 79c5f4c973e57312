//! Traces and listings of the pickle in a checkpoint.

use std::io::Write;
use std::path::{Path, PathBuf};

use checkpoint_files::{CheckpointSources, ShardPolicy};
use pickle_vm::trace::{self, ListingOptions, PickleSummary, TraceError, TraceView};
use pickle_vm::{Heap, ObjectId};
use torch_import::{Pickles, annotate, count_tensors};

use crate::{Error, Result};

/// Options for tracing a pickle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceOptions {
    /// Path of a checkpoint, of a bare pickle, or of the folder of a trainer's checkpoint.
    pub input: PathBuf,
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
    output::refuse_remote(&options.input)?;
    let found = if options.input.is_dir() { pickle_of_folder(&options.input)? } else { None };
    let path = found.as_deref().unwrap_or(&options.input);
    let at = |error: torch_import::Error| Error::at(path)(Error::Checkpoint(error));
    let pickles = Pickles::open(path).map_err(|error| match error {
        torch_import::Error::Map(error) => Error::Map(error),
        error => at(error),
    })?;
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
