//! Writes an output: the back end plans the files, and the commit writes them unless it is a dry run.

use std::cell::OnceCell;
use std::rc::Rc;
use std::time::Instant;

use adapter::{MergeReports, SumReport};
use byte_source::Observer;
use open::files::Companion;
use open::{Casts, DequantizedReport, Model, StepReport, Totals, allowed_nbytes, digest_tensors};
use output::{CommitTarget, FileSums, commit};
use tensor::announce_reads;
use torch_import::{Container, Omissions};

use crate::back::{NonTensorParts, OutputJob, OutputPlan};
use crate::note_collector::NoteCollector;
use crate::report::TensorListing;
use crate::{ConvertReport, Error, Note, PlannedConversion, Problem, Result};

/// Version of the fields of [`ConvertReport`].
const SCHEMA_VERSION: u32 = 1;

/// Refuses an output of `nbytes` bytes, which may include the files `misc`, that is more than `factor` times as large as its
/// input of `input` bytes and these files.
///
/// # Errors
/// When the output is too large.
fn check_expansion(input: u64, misc: &[Companion], nbytes: u64, factor: u64) -> Result<()> {
    let misc = misc.iter().filter_map(|(_, path)| path.metadata().ok()).map(|file| file.len());
    let input = misc.fold(input, u64::saturating_add);
    if nbytes > allowed_nbytes(input, factor) {
        return Err(Problem::Expansion { input, output: nbytes, factor }.into());
    }
    Ok(())
}

/// Parts of a conversion besides the tensors of its model.
pub(crate) struct OutputParts {
    /// Module of a TorchScript input whose code is kept, and values.
    pub(crate) kept: NonTensorParts,
    /// Number of values that are not tensors and are worth a note.
    pub(crate) values: usize,
    /// File name and text of the generated document that replaces the documents next to the checkpoint.
    pub(crate) document: Option<(&'static str, String)>,
    /// Names and contents of the documents that describe a tokenizer of Meta.
    pub(crate) tokenizer: Vec<(&'static str, Vec<u8>)>,
    /// Files to keep with the tensors.
    pub(crate) misc: Vec<Companion>,
    /// Method that quantized the weights, if they are written as they are stored.
    pub(crate) quantized: Option<String>,
    /// Contents of the files that are neither tensors nor values.
    pub(crate) omitted: Omissions,
}

/// What the steps of a conversion did, of each kind of step.
#[derive(Default)]
struct StepReports {
    dequantized: Vec<DequantizedReport>,
    sum: Option<SumReport>,
    merged: Vec<MergeReports>,
    casts: Vec<Casts>,
}

impl From<Vec<StepReport>> for StepReports {
    fn from(reports: Vec<StepReport>) -> Self {
        let mut all = Self::default();
        for report in reports {
            match report {
                StepReport::Names => {}
                StepReport::Dequantized(reports) => all.dequantized.extend(reports),
                StepReport::Summed(report) => all.sum = Some(report),
                StepReport::Merged(reports) => all.merged.push(reports),
                StepReport::Cast(casts) => all.casts.push(casts),
            }
        }
        all
    }
}

/// Writes the model that the steps of a conversion made, unless it is a dry run, and returns the report. The conversion began at
/// `start`. The output is moved into place once `is_ready` returns.
///
/// # Errors
/// When the format cannot represent the tensors, the output cannot be written, or `observer` stops the work.
pub(crate) fn write_output(
    conversion: &PlannedConversion,
    (model, steps): (&mut Model, Vec<StepReport>),
    parts: OutputParts,
    mut notes: NoteCollector<'_>,
    start: Instant,
    (is_ready, observer): (&dyn Fn() -> Result<()>, &dyn Observer),
) -> Result<ConvertReport> {
    let PlannedConversion { options, output, .. } = conversion;
    let OutputParts { kept, values, document, tokenizer, misc, quantized, omitted } = parts;
    let StepReports { dequantized, sum, merged, casts } = steps.into();
    let origins = model.origins.take().filter(|_| options.dry_run).unwrap_or_default();
    let model = &*model;
    let tensors = model.tensors();
    let digest = options.digest.then(|| Rc::new(OnceCell::new()));
    let job = OutputJob {
        model,
        conversion,
        target: output,
        is_folder: conversion.is_folder,
        if_exists: options.if_exists,
        destination: &options.destination,
        name: &conversion.name,
        misc: &misc,
        tensors,
        document,
        tokenizer: &tokenizer,
        values,
        digest: digest.clone(),
    };
    announce_reads(tensors.iter().map(|(_, tensor)| (tensor.storage(), 0..tensor.storage().len())));
    let OutputPlan { mut files, report } = options.target.output().plan(&job, kept, &mut notes)?;
    files.sums = FileSums { crc32: conversion.checksums, sha256: conversion.is_stated };
    let nbytes = files.nbytes()?;
    let input = model.input_nbytes();
    check_expansion(input, &misc, nbytes, options.max_expansion)?;
    let located = |error: Error| match error.detail() {
        Some(gguf_model::Problem::NoScale) => error.in_file(model.root()),
        _ => open::name_damaged_tensor(error, tensors),
    };
    if let Some(digest) = &digest {
        let allowed = allowed_nbytes(input, options.max_expansion);
        let computed = digest_tensors(tensors, &conversion.name, allowed, observer);
        // The cell is set once, and a back end reads it when it writes.
        let _ = digest.set(computed.map_err(located)?.sha256);
    }
    let written_files = if options.dry_run {
        drop(files);
        Vec::new()
    } else {
        let check_inputs = || {
            casts.iter().try_for_each(|casts| casts.count_out_of_range(observer))?;
            is_ready()?;
            model.containers.iter().try_for_each(Container::check_unchanged)
        };
        let target =
            CommitTarget { path: output, if_exists: options.if_exists, destination: &options.destination };
        commit(files, target, &check_inputs, observer).map_err(located)?
    };
    if !written_files.is_empty() && !conversion.is_folder {
        output::note_origin(output, &output::file_name(&conversion.sources.path));
    }
    let made = report();
    notes.extend(casts.iter().flat_map(Casts::notes));
    notes.extend(quantized.map(|method| Note::Quantized { method }));
    Ok(ConvertReport {
        schema_version: SCHEMA_VERSION,
        file: match options.inputs.as_slice() {
            [input] => input.path().display().to_string(),
            _ => model.root().display().to_string(),
        },
        output: output.display().to_string(),
        to: options.target.format().name(),
        written: !options.dry_run,
        nbytes,
        format_report: made,
        tensors: tensors.len(),
        totals: Totals::from_tensors(tensors.iter().map(|(_, tensor)| tensor)),
        sum,
        adapters: merged.into_iter().flat_map(|it| it.into_reports(!options.dry_run)).collect(),
        dequantized,
        casts: casts.iter().flat_map(Casts::reports).collect(),
        digest: digest.and_then(|digest| digest.get().cloned()),
        listing: if options.dry_run { TensorListing::new(tensors, origins) } else { Vec::new() },
        left_out_count: omitted.count(),
        left_out: omitted.listed,
        statement: None,
        notes: notes.into_vec(),
        seconds: start.elapsed().as_secs_f64(),
        written_files,
    })
}
