//! `torch2carton run`: runs a carton on the CPU.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use carton_tools::SaveOptions;
use pipeline::{Observer, ProgressUpdate, format_bytes};
use runtime::{Runnable, RunnableKind};

use super::{run_tests, run_text};
use crate::cli::args::Run;
use crate::cli::ui::invocation::UsageError;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::run_advice::unwrap_carton_error;
use crate::cli::ui::signals::{self, INTERRUPTED, Interruption};
use crate::cli::ui::terminal::{self, escape_hidden};

pub(crate) fn run(args: &Run, quiet: bool) -> Result<ExitCode> {
    let asks = args.text.is_some() || args.tokens.is_some();
    if !asks && args.get.is_none() && !args.self_test {
        let text = "what to do is missing: a text, --tokens, --self-test, or --get NAME -o FILE.npy";
        return Err(UsageError(text.to_owned()).into());
    }
    if args.output.is_some() && args.get.is_none() {
        return Err(UsageError("-o is for --get NAME, which is missing".to_owned()).into());
    }
    let interruption = signals::watch_ctrl_c()?;
    match run_carton(args, quiet, &interruption) {
        Err(_) if interruption.is_set() => Ok(ExitCode::from(INTERRUPTED)),
        other => other,
    }
}

fn run_carton(args: &Run, quiet: bool, interruption: &Interruption) -> Result<ExitCode> {
    let progress = Progress::new(quiet || args.json);
    let watched = CancellableProgress { progress: &progress, interruption };
    let runnable = Runnable::open(&args.file, &args.open_options(), &watched).map_err(unwrap_carton_error)?;
    progress.clear();
    if args.self_test {
        return run_tests::run(args, quiet, &runnable, interruption);
    }
    if let (Some(name), Some(output)) = (&args.get, &args.output) {
        save_tensor(args, quiet, &runnable, (name, output), &watched)?;
        progress.clear();
        return Ok(ExitCode::SUCCESS);
    }
    run_text::run(args, quiet, &runnable, interruption)
}

/// Writes the tensor `name` into the NumPy file `output`.
fn save_tensor(
    args: &Run,
    quiet: bool,
    runnable: &Runnable,
    (name, output): (&String, &Path),
    observer: &dyn Observer,
) -> Result<()> {
    let found = runnable.tensors().iter().find(|(known, _)| known == name);
    let (_, tensor) = found.ok_or_else(|| unknown_tensor(runnable, name))?;
    let mut options = SaveOptions::new(output);
    options.if_exists = args.existing.if_exists();
    let report = carton_tools::save_array(&args.file, name, tensor, &options, observer)?;
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

fn unknown_tensor(runnable: &Runnable, name: &str) -> anyhow::Error {
    let file = crate::cli::ui::shell::shell_quoted_path(runnable.path());
    let what = match runnable.kind() {
        RunnableKind::Weights => "carton",
        _ => "model",
    };
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
