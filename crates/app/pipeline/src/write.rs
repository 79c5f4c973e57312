//! Writes an output: the back end plans the files, and the commit writes them unless it is a dry run.

use std::time::Instant;

use checkpoint_files::Companion;
use decoder::Decoder;
use tensor::Tensors;
use torch_import::{Container, Omissions};

use crate::back::commit::commit;
use crate::back::{NonTensorParts, OutputJob, OutputPlan};
use crate::cast::Casts;
use crate::note_collector::NoteCollector;
use crate::{Conversion, ConvertReport, Observer, Result, Totals};

/// Version of the fields of [`ConvertReport`].
const SCHEMA_VERSION: u32 = 1;

/// Tensors to write to an output, and other contents of the inputs.
pub(crate) struct SelectedTensors<'t> {
    pub(crate) containers: &'t [Container],
    pub(crate) tensors: &'t Tensors,
    /// Decoder that the tensors belong to, if it is known without documents.
    pub(crate) decoder: Option<&'t Decoder>,
    /// File name and text of the generated document that replaces the documents next to the checkpoint.
    pub(crate) document: Option<(&'static str, String)>,
    /// Number of values that are not tensors and are worth a note.
    pub(crate) values: usize,
    /// Files to keep with the tensors.
    pub(crate) misc: &'t [Companion],
    pub(crate) casts: &'t Casts,
    /// Contents of the files that are neither tensors nor values.
    pub(crate) omitted: Omissions,
}

/// Writes the output of a conversion that began at `start`, unless it is a dry run, and returns the report.
///
/// # Errors
/// When the format cannot represent the tensors, the output cannot be written, or `observer` stops the work.
pub(crate) fn write_output(
    conversion: &Conversion,
    selected: SelectedTensors<'_>,
    kept: NonTensorParts,
    mut notes: NoteCollector<'_>,
    start: Instant,
    observer: &dyn Observer,
) -> Result<ConvertReport> {
    let Conversion { options, sources, output, .. } = conversion;
    let SelectedTensors { containers, tensors, decoder, document, values, misc, casts, omitted } = selected;
    let job = OutputJob {
        sources,
        containers,
        shards: options.shards,
        overrides: options.overrides,
        target: output,
        is_folder: conversion.is_folder,
        if_exists: options.if_exists,
        name: &conversion.name,
        misc,
        tensors,
        decoder,
        target_layout: options.target.format().requested_layout(),
        document,
        values,
    };
    let OutputPlan { files, report } = options.target.plan(&job, kept, &mut notes)?;
    let nbytes = files.nbytes()?;
    if options.dry_run {
        drop(files);
    } else {
        let check_inputs = || {
            casts.count_out_of_range(observer)?;
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
        format_report: made,
        tensors: tensors.len(),
        totals: Totals::from_tensors(tensors.iter().map(|(_, tensor)| tensor)),
        casts: casts.reports(),
        left_out_count: omitted.count(),
        left_out: omitted.listed,
        notes: notes.into_vec(),
        seconds: start.elapsed().as_secs_f64(),
    })
}
