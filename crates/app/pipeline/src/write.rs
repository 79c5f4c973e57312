//! The back end plans the output, the files are committed unless it is a dry run, and the report says what was made.

use std::time::Instant;

use checkpoint_files::Companion;
use decoder::Decoder;
use tensor::Tensors;
use torch_import::{Container, LeftOut};

use crate::back::commit::commit;
use crate::back::{Job, Kept, Plan};
use crate::cast::Casts;
use crate::notes::Notes;
use crate::{Conversion, ConvertReport, Observer, Result, Totals};

/// Version of the members of [`ConvertReport`].
const SCHEMA_VERSION: u32 = 1;

/// The tensors of an output, and what else the inputs hold.
pub(crate) struct SelectedTensors<'t> {
    pub(crate) containers: &'t [Container],
    pub(crate) tensors: &'t Tensors,
    /// The decoder whose tensors they are, if that is known without documents.
    pub(crate) decoder: Option<&'t Decoder>,
    /// The document that describes the tensors in place of those next to the checkpoint: the name of its file, and its text.
    pub(crate) document: Option<(&'static str, String)>,
    /// The compound tensors that some of them are parts of, by name.
    /// The number of values that are not tensors and are worth a note.
    pub(crate) values: usize,
    /// The files to keep.
    pub(crate) misc: &'t [Companion],
    pub(crate) casts: &'t Casts,
    /// The contents of the files that are neither tensors nor values.
    pub(crate) omitted: LeftOut,
}

/// Writes the output of a conversion that began at `start`, unless it is a dry run, and reports what was made.
///
/// # Errors
/// When the format has no room for the tensors, the output cannot be written, or `observer` stops the work.
pub(crate) fn write(
    conversion: &Conversion,
    selected: SelectedTensors<'_>,
    kept: Kept,
    mut notes: Notes<'_>,
    start: Instant,
    observer: &dyn Observer,
) -> Result<ConvertReport> {
    let Conversion { options, sources, output, .. } = conversion;
    let SelectedTensors { containers, tensors, decoder, document, values, misc, casts, omitted } = selected;
    let job = Job {
        sources,
        containers,
        shards: options.shards,
        given: options.given,
        target: output,
        is_folder: conversion.is_folder,
        if_exists: options.if_exists,
        name: &conversion.name,
        misc,
        tensors,
        decoder,
        names: options.target.format().names(),
        document,
        values,
    };
    let Plan { files, report } = options.target.plan(&job, kept, &mut notes)?;
    let nbytes = files.nbytes()?;
    if options.dry_run {
        drop(files);
    } else {
        let check_inputs = || {
            casts.count(observer)?;
            containers.iter().try_for_each(Container::check_unchanged)
        };
        commit(files, (output, options.if_exists), &check_inputs, observer)
            .map_err(|error| error.with_tensor(tensors))?;
    }
    let made = report();
    notes.extend(casts.notes());
    Ok(ConvertReport {
        schema_version: SCHEMA_VERSION,
        file: match options.inputs.as_slice() {
            [input] => input.display().to_string(),
            _ => sources.root().display().to_string(),
        },
        output: output.display().to_string(),
        to: options.target.kind(),
        written: !options.dry_run,
        nbytes,
        made,
        tensors: tensors.len(),
        totals: Totals::from_tensors(tensors.iter().map(|(_, tensor)| tensor)),
        casts: casts.reports(),
        left_out_count: omitted.count(),
        left_out: omitted.listed,
        notes: notes.into_vec(),
        seconds: start.elapsed().as_secs_f64(),
    })
}
