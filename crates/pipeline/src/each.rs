//! Many checkpoints, one after the other.

use std::path::{Path, PathBuf};

use carton_reader::Carton;
use serde::Serialize;
use store::file_name;

use crate::{ConvertOptions, ConvertReport, Error, InvalidOption, Observer, Result, convert, default_output};

/// Version of the members of [`EachReport`].
const SCHEMA_VERSION: u32 = 1;

/// What became of one input.
#[derive(Debug)]
pub enum Converted {
    /// It was converted.
    Done(Box<ConvertReport>),
    /// Its carton exists and is whole.
    Skipped {
        /// The input.
        input: PathBuf,
        /// The carton.
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
pub struct EachReport {
    /// Version of these members.
    pub schema_version: u32,
    /// How many were converted.
    pub converted: usize,
    /// How many had a whole carton.
    pub skipped: usize,
    /// How many failed.
    pub failed: usize,
}

/// Converts each of `options.inputs` on its own into the folder `options.output`, and goes on after a failure. With
/// `resume`, an input is skipped when its carton exists, is whole, and is not older than the input. `done` receives
/// each result at once.
///
/// A carton is whole when its directory can be read and has every file of MANIFEST: cartons are written to temporary
/// files, so a conversion that was interrupted leaves none. Hashes are not compared.
///
/// # Errors
/// When the output is not a folder, two inputs have the same output, `done` fails, or `observer` stops the work.
pub fn convert_each(
    options: &ConvertOptions,
    resume: bool,
    observer: &dyn Observer,
    done: &mut dyn FnMut(Converted) -> Result<()>,
) -> Result<EachReport> {
    let mut report = EachReport { schema_version: SCHEMA_VERSION, ..EachReport::default() };
    let mut outputs: Vec<(PathBuf, &Path)> = Vec::new();
    for input in &options.inputs {
        let mut one = ConvertOptions { inputs: vec![input.clone()], output: None, ..options.clone() };
        let output = default_output(&one).map(|output| match &options.output {
            Some(folder) => folder.join(file_name(&output)),
            None => output,
        });
        let result = match output {
            Err(error) => Err(error),
            Ok(output) => {
                if let Some((_, first)) = outputs.iter().find(|(other, _)| *other == output) {
                    let (first, second) = ((*first).to_owned(), input.clone());
                    return Err(InvalidOption::SameOutput { output, first, second }.into());
                }
                outputs.push((output.clone(), input));
                if resume && is_current(&output, input) {
                    report.skipped = report.skipped.saturating_add(1);
                    done(Converted::Skipped { input: input.clone(), output })?;
                    continue;
                }
                one.output = Some(output);
                convert(&one, observer)
            }
        };
        match result {
            Ok(converted) => {
                report.converted = report.converted.saturating_add(1);
                done(Converted::Done(Box::new(converted)))?;
            }
            Err(Error::Cancelled) => return Err(Error::Cancelled),
            Err(error) => {
                report.failed = report.failed.saturating_add(1);
                done(Converted::Failed { input: input.clone(), error })?;
            }
        }
    }
    Ok(report)
}

/// Whether the carton at `output` is whole and was written after `input` last changed.
fn is_current(output: &Path, input: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let (Some(written), Some(changed)) = (changed(output), changed(input)) else { return false };
    written >= changed && Carton::open(output).is_ok_and(|carton| carton.absent().is_empty())
}
