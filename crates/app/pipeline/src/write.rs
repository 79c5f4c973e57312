//! Writes an output: the back end plans the files, and the commit writes them unless it is a dry run.

use std::cell::OnceCell;
use std::rc::Rc;
use std::time::Instant;

use adapter::{MergeReports, SumReport};
use checkpoint_files::Companion;
use decoder::Decoder;
use tensor::Tensors;
use torch_import::{Container, Omissions};

use crate::back::commit::{CommitTarget, commit};
use crate::back::{NonTensorParts, OutputJob, OutputPlan};
use crate::cast::Casts;
use crate::digest::digest_tensors;
use crate::note_collector::NoteCollector;
use crate::report::TensorListing;
use crate::{ConvertReport, DequantizedReport, Error, Note, Observer, PlannedConversion, Result, Totals};

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
    /// Checkpoints that were summed.
    pub(crate) sum: Option<SumReport>,
    pub(crate) adapters: Option<MergeReports>,
    /// Quantized tensors whose numbers are computed, by scheme.
    pub(crate) dequantized: Vec<DequantizedReport>,
    /// Method that quantized the weights, if they are written as they are stored.
    pub(crate) quantized: Option<String>,
    /// Contents of the files that are neither tensors nor values.
    pub(crate) omitted: Omissions,
    /// Names of the tensors in the checkpoint, for a dry run; `None` for tensors that were generated.
    pub(crate) origins: Vec<Option<String>>,
}

/// Bytes that an output may have in addition to those of the input, whatever its size: causal masks are expanded views.
const EXPANSION_BASE: u64 = 64 << 20;

/// Returns the largest number of bytes that the tensors of `input` bytes may have together, since views can repeat bytes.
pub fn allowed_nbytes(input: u64, factor: u64) -> u64 {
    input.saturating_mul(factor).max(input.saturating_add(EXPANSION_BASE))
}

/// Refuses an output of `nbytes` bytes, which may include the files `misc`, that is more than `factor` times as large as its input.
///
/// # Errors
/// When the output is too large.
fn check_expansion(containers: &[Container], misc: &[Companion], nbytes: u64, factor: u64) -> Result<()> {
    let misc = misc.iter().filter_map(|(_, path)| path.metadata().ok()).map(|file| file.len());
    let input = containers.iter().map(Container::len).chain(misc).fold(0, u64::saturating_add);
    if nbytes > allowed_nbytes(input, factor) {
        return Err(Error::Expansion { input, output: nbytes, factor });
    }
    Ok(())
}

/// Writes the output of a conversion that began at `start`, unless it is a dry run, and returns the report.
///
/// # Errors
/// When the format cannot represent the tensors, the output cannot be written, or `observer` stops the work.
pub(crate) fn write_output(
    conversion: &PlannedConversion,
    selected: SelectedTensors<'_>,
    kept: NonTensorParts,
    mut notes: NoteCollector<'_>,
    start: Instant,
    observer: &dyn Observer,
) -> Result<ConvertReport> {
    let PlannedConversion { options, sources, output, .. } = conversion;
    let SelectedTensors {
        containers,
        tensors,
        decoder,
        document,
        values,
        misc,
        casts,
        sum,
        adapters,
        dequantized,
        quantized,
        omitted,
        origins,
    } = selected;
    let digest = options.digest.then(|| Rc::new(OnceCell::new()));
    let job = OutputJob {
        sources,
        other_inputs: &conversion.other_inputs,
        containers,
        shards: options.shards(),
        overrides: options.overrides,
        target: output,
        is_folder: conversion.is_folder,
        if_exists: options.if_exists,
        destination: &options.destination,
        name: &conversion.name,
        misc,
        tensors,
        decoder,
        target_layout: options.target.format().requested_layout(),
        document,
        values,
        digest: digest.clone(),
    };
    let OutputPlan { mut files, report } = options.target.format().plan(&job, kept, &mut notes)?;
    files.checksums = conversion.checksums;
    let nbytes = files.nbytes()?;
    check_expansion(containers, misc, nbytes, options.max_expansion)?;
    if let Some(digest) = &digest {
        let input = containers.iter().map(Container::len).fold(0, u64::saturating_add);
        let allowed = allowed_nbytes(input, options.max_expansion);
        let computed = digest_tensors(tensors, &conversion.name, allowed, observer);
        // The cell is set once, and a back end reads it when it writes.
        let _ = digest.set(computed.map_err(|error| error.with_tensor(tensors))?.sha256);
    }
    let written_files = if options.dry_run {
        drop(files);
        Vec::new()
    } else {
        let check_inputs = || {
            casts.count_out_of_range(observer)?;
            containers.iter().try_for_each(Container::check_unchanged)
        };
        let target =
            CommitTarget { path: output, if_exists: options.if_exists, destination: &options.destination };
        commit(files, target, &check_inputs, observer).map_err(|error| error.with_tensor(tensors))?
    };
    let made = report();
    notes.extend(casts.notes());
    notes.extend(quantized.map(|method| Note::Quantized { method }));
    Ok(ConvertReport {
        schema_version: SCHEMA_VERSION,
        file: match options.inputs.as_slice() {
            [input] => input.display().to_string(),
            _ => sources.root().display().to_string(),
        },
        output: output.display().to_string(),
        to: options.target.format().name(),
        written: !options.dry_run,
        nbytes,
        format_report: made,
        tensors: tensors.len(),
        totals: Totals::from_tensors(tensors.iter().map(|(_, tensor)| tensor)),
        sum,
        adapters: adapters.map(|reports| reports.into_reports(!options.dry_run)).unwrap_or_default(),
        dequantized,
        casts: casts.reports(),
        digest: digest.and_then(|digest| digest.get().cloned()),
        listing: if options.dry_run { TensorListing::new(tensors, origins) } else { Vec::new() },
        left_out_count: omitted.count(),
        left_out: omitted.listed,
        notes: notes.into_vec(),
        seconds: start.elapsed().as_secs_f64(),
        written_files,
    })
}
