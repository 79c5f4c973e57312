//! `torch2carton run`: runs a carton on the CPU.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use byte_source::{Location, Observer, ProgressUpdate, format_bytes};
use carton_format::Carton;
use carton_tools::SaveArrayOptions;
use runtime::RunnableKind;
#[cfg(any(feature = "serve", feature = "tokenizer"))]
use runtime::{Runnable, RunnableOptions};
use tensor::Tensors;

use super::{run_overview, run_tests, run_text};
use crate::cli::args::Run;
use crate::cli::ui::invocation::UsageError;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::run_advice::is_foreign_code;
use crate::cli::ui::signals::{self, INTERRUPTED, Interruption};
use crate::cli::ui::stdin;
use crate::cli::ui::terminal::{self, escape_hidden};
use crate::run::open_model;

pub(crate) fn run(args: &Run, quiet: bool) -> Result<ExitCode> {
    if args.output.is_some() && args.get.is_none() {
        return Err(UsageError("-o is for --get NAME, which is missing".to_owned()).into());
    }
    if let Some(output) = args.output.as_deref().filter(|output| !is_numpy_output(output)) {
        return Err(UsageError(format!(
            "-o {}: a tensor is written as a NumPy array; expected the extension .npy, or - for standard output",
            output.display()
        ))
        .into());
    }
    stdin::reject(&args.file, "run")?;
    // Until the bytes at an address are here, Ctrl-C ends the program at once: a server may be silent.
    let input = args.remote.locate(&args.file)?;
    let progress = Progress::new(quiet || args.json);
    if let (false, false, Some(name), Some(output)) =
        (input.is_local(), args.open.verify, &args.get, &args.output)
    {
        // Only the bytes of the tensor are requested.
        let carton = carton_tools::open(&input)?;
        let tensors: Tensors = carton_tools::tensors(&carton, &progress)?.into_iter().collect();
        save_tensor(args, quiet, (&tensors, "carton"), (name, output), &progress)?;
        progress.clear();
        return Ok(ExitCode::SUCCESS);
    }
    let copied = carton_tools::copy_carton(&input, &progress);
    progress.clear();
    let interruption = signals::watch_ctrl_c()?;
    match run_carton(args, &input, copied, quiet, &interruption) {
        Err(_) if interruption.is_set() => Ok(ExitCode::from(INTERRUPTED)),
        other => other,
    }
}

fn run_carton(
    args: &Run,
    input: &Location,
    copied: byte_source::Result<Carton>,
    quiet: bool,
    interruption: &Interruption,
) -> Result<ExitCode> {
    let progress = Progress::new(quiet || args.json);
    let watched = CancellableProgress { progress: &progress, interruption };
    let is_carton = copied.is_ok();
    let opened = open_model(copied, input, &args.open, &watched);
    let is_foreign = is_carton && opened.as_ref().is_err_and(is_foreign_code);
    if let (true, Some(name), Some(output)) = (is_foreign, &args.get, &args.output) {
        // The tensors of a module can be read although its code cannot run.
        let carton = carton_tools::open(input)?;
        let tensors: Tensors = carton_tools::tensors(&carton, &watched)?.into_iter().collect();
        save_tensor(args, quiet, (&tensors, "model"), (name, output), &watched)?;
        progress.clear();
        return Ok(ExitCode::SUCCESS);
    }
    let only_overview = args.text.is_none() && args.tokens.is_none() && !args.self_test && args.get.is_none();
    if is_foreign && only_overview {
        progress.clear();
        run_overview::print_overview_of_code(&carton_tools::open(input)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let runnable = opened?;
    progress.clear();
    if args.self_test {
        return run_tests::run(args, quiet, &runnable, interruption);
    }
    if let (Some(name), Some(output)) = (&args.get, &args.output) {
        let what = if matches!(runnable.kind(), RunnableKind::Weights) { "carton" } else { "model" };
        save_tensor(args, quiet, (runnable.tensors(), what), (name, output), &watched)?;
        progress.clear();
        return Ok(ExitCode::SUCCESS);
    }
    if args.text.is_none() && args.tokens.is_none() {
        run_overview::print_overview(&runnable)?;
        return Ok(ExitCode::SUCCESS);
    }
    run_text::run(args, quiet, &runnable, interruption)
}

/// Opens a model: a carton, which is copied if it is at an address, or a checkpoint on this machine in place.
#[cfg(any(feature = "serve", feature = "tokenizer"))]
pub(super) fn open_runnable(
    input: &Location,
    options: &RunnableOptions,
    observer: &dyn Observer,
) -> byte_source::Result<Runnable> {
    open_model(carton_tools::copy_carton(input, observer), input, options, observer)
}

/// Returns true if a NumPy array can go to the output.
fn is_numpy_output(output: &Path) -> bool {
    output == Path::new("-")
        || output.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npy"))
}

/// Writes the tensor `name` into the NumPy file `output`.
fn save_tensor(
    args: &Run,
    quiet: bool,
    (tensors, what): (&Tensors, &str),
    (name, output): (&String, &Path),
    observer: &dyn Observer,
) -> Result<()> {
    let tensor =
        tensors.get(name).ok_or_else(|| unknown_tensor(&output::shown_path(&args.file), what, name))?;
    if output == Path::new("-") {
        let mut out = io::BufWriter::new(io::stdout().lock());
        carton_tools::write_array(name, tensor, &mut out)?;
        return Ok(out.flush()?);
    }
    let mut options = SaveArrayOptions::new(output);
    options.if_exists = args.if_exists;
    options.max_expansion = args.max_expansion.unwrap_or(options.max_expansion);
    let report = carton_tools::save_array(&output::shown_path(&args.file), name, tensor, &options, observer)?;
    if args.json {
        return Ok(super::write_json_line(&mut io::stdout().lock(), &report)?);
    }
    if !quiet {
        let cast = if report.saved_dtype == report.dtype {
            String::new()
        } else {
            format!(" as {}, because NumPy has no {}", report.saved_dtype, report.dtype)
        };
        let (output, shape) = (escape_hidden(&report.output), &report.shape);
        terminal::summary(format_args!(
            "{output}: {} {shape:?}{cast}, {}",
            report.dtype,
            format_bytes(report.nbytes)
        ));
    }
    Ok(())
}

fn unknown_tensor(file: &Path, what: &str, name: &str) -> anyhow::Error {
    let file = crate::cli::ui::shell::shell_quoted_path(file);
    anyhow!(
        "there is no tensor `{}` in the {what}; `torch2carton inspect {file}` lists them",
        name.escape_debug()
    )
}

/// Observer that shows progress and cancels on Ctrl-C.
struct CancellableProgress<'w> {
    progress: &'w Progress,
    interruption: &'w Interruption,
}

impl Observer for CancellableProgress<'_> {
    fn progress(&self, step: ProgressUpdate<'_>) {
        self.progress.progress(step);
    }

    fn is_cancelled(&self) -> bool {
        self.interruption.is_set()
    }
}
