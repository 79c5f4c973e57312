//! `torch2carton batch`: does a task with each input of a manifest.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use batch::{Batch, BatchCounts, Error, JobLimits, JobResult, ManifestProblem, Problem, ResultLine};
use byte_source::FileError;

use super::convert_each::default_jobs;
use crate::cli::args::BatchArgs;
use crate::cli::ui::batch_progress::BatchProgress;
use crate::cli::ui::errors;
use crate::cli::ui::escapes::EscapingJsonFormatter;
use crate::cli::ui::invocation::UsageError;
use crate::cli::ui::located_advice::located_text;
use crate::cli::ui::terminal::{self, BOLD};

pub(crate) fn batch(args: BatchArgs, quiet: bool) -> Result<ExitCode> {
    // Flags that are wrong are reported as such, not as a wrong first line.
    let args = args.with_named_options().map_err(UsageError)?;
    let task = args.task_options().map_err(UsageError)?;
    let parse = Box::new(move |options: &_, output: Option<&_>| task.parse(options, output));
    let batch = Batch::open(&args.settings(), parse, encode_batch_line).map_err(with_advice)?;
    let progress = BatchProgress::new(quiet, batch.total());
    let limits = JobLimits {
        jobs: args.jobs.unwrap_or_else(default_jobs),
        memory: args.max_memory.or_else(batch::default_memory_limit),
    };
    let is_printed = args.results.is_none();
    let counts = batch.run(limits, &(), &mut |result, counts| {
        progress.clear_before(|| report(result, is_printed))?;
        progress.show(counts);
        Ok(())
    });
    progress.finish();
    let counts = counts.map_err(with_advice)?;
    if !quiet {
        terminal::summary(format_args!("{BOLD}{}{BOLD:#}", counts_text(&counts, args.resume)));
    }
    Ok(if counts.failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Prints the line of a result, and the error of an input that failed now.
fn report(result: &JobResult, is_printed: bool) -> io::Result<()> {
    if let (Some(error), false) = (&result.line.error, result.is_kept()) {
        errors::print_error(&anyhow!("{error}"));
    }
    if is_printed {
        let mut out = io::stdout().lock();
        super::write_json_line(&mut out, &result.line)?;
        out.flush()?;
    }
    Ok(())
}

pub(crate) fn encode_batch_line(line: &ResultLine) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut json = serde_json::Serializer::with_formatter(&mut bytes, EscapingJsonFormatter);
    serde::Serialize::serialize(line, &mut json)?;
    Ok(bytes)
}

fn counts_text(counts: &BatchCounts, is_resumed: bool) -> String {
    let kept = if is_resumed { format!(", {} of them from before", counts.kept) } else { String::new() };
    let repeated = match counts.repeated_bytes {
        0 => String::new(),
        repeated => format!("; {} of tensors are repeated", byte_source::format_bytes(repeated)),
    };
    format!("{} ok, {} failed{kept}{repeated}", counts.ok, counts.failed)
}

/// Returns the error with the option that helps. A wrong manifest is wrong usage.
fn with_advice(error: Error) -> anyhow::Error {
    let error = match error.downcast() {
        // The reader of standard output is gone.
        Ok(FileError::Output { reason, .. }) => return reason.into(),
        Ok(problem @ FileError::Read { .. }) => {
            return UsageError(located_text(&problem.into())).into();
        }
        Ok(problem) => problem.into(),
        Err(error) => error,
    };
    let is_wrong_usage = match error.detail() {
        None | Some(Problem::Index(_) | Problem::Manifest { problem: ManifestProblem::Read(_), .. }) => false,
        Some(_) => true,
    };
    if is_wrong_usage { UsageError(located_text(&error)).into() } else { error.into() }
}
