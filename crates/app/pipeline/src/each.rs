//! Many checkpoints, one after the other.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::{Conversion, ConvertOptions, ConvertReport, Error, InvalidOption, Observer, Result};

/// Version of the members of [`EachReport`].
const SCHEMA_VERSION: u32 = 1;

/// What became of one input.
#[derive(Debug)]
pub enum BatchItem {
    /// It was converted.
    Done(Box<ConvertReport>),
    /// Its output exists and is whole.
    Skipped {
        /// The input.
        input: PathBuf,
        /// The output.
        output: PathBuf,
    },
    /// It cannot be converted.
    Failed {
        /// The input.
        input: PathBuf,
        /// Why.
        error: Error,
    },
}

/// What became of all inputs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EachReport {
    /// Version of these members.
    pub schema_version: u32,
    /// How many were converted.
    pub converted: usize,
    /// How many had a whole output.
    pub skipped: usize,
    /// How many failed.
    pub failed: usize,
}

/// Converts each of `options.inputs` on its own into the folder `options.output`, which is created if needed, and goes
/// on after a failure. With `resume`, an input is skipped when its output exists, is whole, and is not older than the
/// input. `done` receives each result at once.
///
/// A carton is whole when its directory can be read and has every file of MANIFEST, another file when its directory or
/// header can be read: outputs are temporary files until they are complete, so a conversion that was interrupted leaves
/// none. Hashes are not compared.
///
/// # Errors
/// When the output is not a folder, two inputs have the same output, `done` fails, or `observer` stops the work.
pub fn convert_each(
    options: &ConvertOptions,
    resume: bool,
    observer: &dyn Observer,
    done: &mut dyn FnMut(BatchItem) -> Result<()>,
) -> Result<EachReport> {
    let mut planned: Vec<(&Path, Result<Conversion>)> = Vec::with_capacity(options.inputs.len());
    let mut outputs: HashMap<PathBuf, &Path> = HashMap::new();
    for input in &options.inputs {
        let conversion = plan(options, input);
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
    let mut report = EachReport { schema_version: SCHEMA_VERSION, ..EachReport::default() };
    for (input, conversion) in planned {
        let result = match conversion {
            Ok(conversion) if resume && is_current(&conversion) => {
                report.skipped = report.skipped.saturating_add(1);
                done(BatchItem::Skipped { input: input.to_owned(), output: conversion.own_output() })?;
                continue;
            }
            conversion => conversion.and_then(|conversion| conversion.run(observer)),
        };
        match result {
            Ok(converted) => {
                report.converted = report.converted.saturating_add(1);
                done(BatchItem::Done(Box::new(converted)))?;
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

/// Plans the conversion of one of the inputs.
fn plan(options: &ConvertOptions, input: &Path) -> Result<Conversion> {
    let alone = ConvertOptions { inputs: vec![input.to_owned()], output: None, ..options.clone() };
    match &options.output {
        Some(folder) => Conversion::plan_in(folder, alone),
        None => Conversion::plan(&alone),
    }
}

/// Whether the output is whole and was written after each file of the input last changed.
fn is_current(conversion: &Conversion) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let (format, output) = (conversion.options.target.format(), conversion.own_output());
    let Some(written) = changed(&format.last_file(&output)) else { return false };
    let is_older = |path: &Path| changed(path).is_some_and(|changed| changed <= written);
    conversion.sources.inputs().all(is_older) && format.is_whole(&output)
}
