//! Many checkpoints, one after the other.

use std::path::{Path, PathBuf};

use carton_reader::Carton;
use serde::Serialize;
use sources::Sources;
use store::{file_name, folder};
use torch_import::Container;

use crate::convert::convert_into;
use crate::destination::Destination;
use crate::{
    ConvertOptions, ConvertReport, Error, InvalidOption, Observer, OutputKind, Result, default_output, input,
    naming,
};

/// Version of the members of [`EachReport`].
const SCHEMA_VERSION: u32 = 1;

/// What became of one input.
#[derive(Debug)]
pub enum Converted {
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
    done: &mut dyn FnMut(Converted) -> Result<()>,
) -> Result<EachReport> {
    let kind = Destination::new(options)?.kind;
    let mut outputs: Vec<(Result<PathBuf>, &Path)> = Vec::with_capacity(options.inputs.len());
    for input in &options.inputs {
        let output = output_of(options, kind, input);
        if let Ok(output) = &output {
            let is_same =
                |(other, _): &&(Result<PathBuf>, &Path)| other.as_ref().is_ok_and(|it| it == output);
            if let Some((_, first)) = outputs.iter().find(is_same) {
                let (first, second) = ((*first).to_owned(), input.clone());
                return Err(InvalidOption::SameOutput { output: output.clone(), first, second }.into());
            }
        }
        outputs.push((output, input));
    }
    if let Some(folder) = options.output.as_ref().filter(|_| !options.dry_run) {
        if folder.exists() && !folder.is_dir() {
            return Err(InvalidOption::NotAFolder { path: folder.clone() }.into());
        }
        std::fs::create_dir_all(folder)
            .map_err(|reason| Error::CreateFolder { path: folder.clone(), reason })?;
    }
    let mut report = EachReport { schema_version: SCHEMA_VERSION, ..EachReport::default() };
    for (output, input) in outputs {
        let result = match output {
            Ok(output) if resume && is_current((&output, kind), input, options.single) => {
                report.skipped = report.skipped.saturating_add(1);
                done(Converted::Skipped { input: input.to_owned(), output })?;
                continue;
            }
            Ok(output) => {
                let output = if kind == OutputKind::Triton { folder(&output).to_owned() } else { output };
                let one = ConvertOptions { output: Some(output), ..alone(options, input) };
                convert_into(&one, options.output.is_none(), observer)
            }
            Err(error) => Err(error),
        };
        match result {
            Ok(converted) => {
                report.converted = report.converted.saturating_add(1);
                done(Converted::Done(Box::new(converted)))?;
            }
            Err(Error::Cancelled) => return Err(Error::Cancelled),
            Err(error) => {
                report.failed = report.failed.saturating_add(1);
                done(Converted::Failed { input: input.to_owned(), error })?;
            }
        }
    }
    Ok(report)
}

/// Where the input's output goes: a file, or the folder of its model in a repository.
fn output_of(options: &ConvertOptions, kind: OutputKind, input: &Path) -> Result<PathBuf> {
    let alone = alone(options, input);
    let output = default_output(&alone)?;
    Ok(match (&options.output, kind) {
        (folder, OutputKind::Triton) => {
            let name = naming::model_name(&alone, &input::sources(&alone, kind)?);
            folder.as_ref().unwrap_or(&output).join(name)
        }
        (Some(folder), _) => folder.join(file_name(&output)),
        (None, _) => output,
    })
}

fn alone(options: &ConvertOptions, input: &Path) -> ConvertOptions {
    ConvertOptions { inputs: vec![input.to_owned()], output: None, ..options.clone() }
}

/// Whether the output is whole and was written after each file of `input` last changed.
fn is_current((output, kind): (&Path, OutputKind), input: &Path, single: bool) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let Ok(sources) = Sources::find(&[input.to_owned()], single) else { return false };
    let file =
        if kind == OutputKind::Triton { output.join(triton_repository::CONFIG) } else { output.to_owned() };
    let Some(written) = changed(&file) else { return false };
    let is_older = |path: &Path| changed(path).is_some_and(|changed| changed <= written);
    let is_whole = || match kind {
        OutputKind::Carton => Carton::open(output).is_ok_and(|carton| carton.absent().is_empty()),
        OutputKind::Safetensors | OutputKind::Torch => {
            Sources::find(&[output.to_owned()], false).is_ok_and(|sources| sources.open().is_ok())
        }
        OutputKind::Triton => Container::open(&output.join(triton_repository::MODEL)).is_ok(),
    };
    sources.inputs().all(is_older) && is_whole()
}
