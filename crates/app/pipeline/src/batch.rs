//! Conversion of many checkpoints, one after the other.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::{Conversion, ConvertOptions, ConvertReport, Error, InvalidOption, Observer, Result};

/// Version of the fields of [`BatchReport`].
const SCHEMA_VERSION: u32 = 1;

/// Result of converting one input of a batch.
#[derive(Debug)]
pub enum BatchItem {
    Converted(Box<ConvertReport>),
    /// The input already has a complete output.
    Skipped {
        input: PathBuf,
        output: PathBuf,
    },
    Failed {
        input: PathBuf,
        error: Error,
    },
}

/// Counts of the results of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BatchReport {
    /// Version of the report's fields.
    pub schema_version: u32,
    /// Number of inputs that were converted.
    pub converted: usize,
    /// Number of inputs that already had a complete output.
    pub skipped: usize,
    /// Number of inputs that could not be converted.
    pub failed: usize,
}

/// Converts each of `options.inputs` separately into the folder `options.output`, which is created if needed, and continues
/// after a failure. With `resume`, an input is skipped if its output exists, is complete, and is not older than the input.
/// `done` receives each result immediately.
///
/// A carton is complete if its central directory can be read and has every file of MANIFEST; any other file, if its central
/// directory or header can be read. Outputs are temporary files until they are complete, so an interrupted conversion leaves
/// no incomplete output. Hashes are not compared.
///
/// # Errors
/// When the output is not a folder, two inputs have the same output, `done` fails, or `observer` stops the work.
pub fn convert_each(
    options: &ConvertOptions,
    resume: bool,
    observer: &dyn Observer,
    done: &mut dyn FnMut(BatchItem) -> Result<()>,
) -> Result<BatchReport> {
    let mut planned: Vec<(&Path, Result<Conversion>)> = Vec::with_capacity(options.inputs.len());
    let mut outputs: HashMap<PathBuf, &Path> = HashMap::new();
    for input in &options.inputs {
        let conversion = plan_input(options, input);
        if let Ok(conversion) = &conversion
            && let Some(first) = outputs.insert(conversion.own_output(), input)
        {
            let (output, first, second) = (conversion.own_output(), first.to_owned(), input.clone());
            return Err(InvalidOption::SameOutput { output, first, second }.into());
        }
        planned.push((input, conversion));
    }
    if let Some(folder) = options.output.as_ref().filter(|_| !options.dry_run) {
        if folder.exists() && !folder.is_dir() {
            return Err(InvalidOption::NotAFolder { path: folder.clone() }.into());
        }
        std::fs::create_dir_all(folder)
            .map_err(|reason| Error::CreateFolder { path: folder.clone(), reason })?;
    }
    let mut report = BatchReport { schema_version: SCHEMA_VERSION, ..BatchReport::default() };
    for (input, conversion) in planned {
        let result = match conversion {
            Ok(conversion) if resume && is_up_to_date(&conversion) => {
                report.skipped = report.skipped.saturating_add(1);
                done(BatchItem::Skipped { input: input.to_owned(), output: conversion.own_output() })?;
                continue;
            }
            conversion => conversion.and_then(|conversion| conversion.run(observer)),
        };
        match result {
            Ok(converted) => {
                report.converted = report.converted.saturating_add(1);
                done(BatchItem::Converted(Box::new(converted)))?;
            }
            Err(Error::Cancelled) => return Err(Error::Cancelled),
            Err(error) => {
                report.failed = report.failed.saturating_add(1);
                done(BatchItem::Failed { input: input.to_owned(), error })?;
            }
        }
    }
    Ok(report)
}

/// Plans the conversion of one input of the batch.
fn plan_input(options: &ConvertOptions, input: &Path) -> Result<Conversion> {
    let alone = ConvertOptions { inputs: vec![input.to_owned()], output: None, ..options.clone() };
    match &options.output {
        Some(folder) => Conversion::plan_in(folder, alone),
        None => Conversion::plan(&alone),
    }
}

/// Returns true if the output is complete and was written after the last change of each input file.
fn is_up_to_date(conversion: &Conversion) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let (format, output) = (conversion.options.target.format(), conversion.own_output());
    let Some(written) = changed(&format.last_file(&output)) else { return false };
    let is_older = |path: &Path| changed(path).is_some_and(|changed| changed <= written);
    conversion.sources.inputs().all(is_older) && format.is_complete(&output)
}
