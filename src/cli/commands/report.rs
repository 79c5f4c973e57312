//! `torch2carton report`: writes a report on a checkpoint, or on the differences of two, as one HTML page.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use byte_source::InputSource;
use compare::DiffOptions;
use output::IfExists;
use pipeline::format_bytes;
use report_page::ReportOptions;

use crate::cli::args::Report;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::stdin;
use crate::cli::ui::terminal::{self, escape_hidden};

pub(crate) fn report(args: &Report, quiet: bool) -> Result<ExitCode> {
    let progress = Progress::new(quiet);
    let given: Vec<&PathBuf> = [Some(&args.file), args.other.as_ref()].into_iter().flatten().collect();
    let sources: Vec<Option<InputSource>> =
        given.iter().map(|file| args.remote.open(file)).collect::<Result<_>>()?;
    let inputs: Vec<PathBuf> = given.iter().map(|file| stdin::input_path(file)).collect::<Result<_>>()?;
    let target = PageTarget {
        path: args.output.clone().unwrap_or_else(|| default_output(&given, &sources)),
        if_exists: args.if_exists,
    };
    target.check(&inputs)?;
    let mut page = Vec::new();
    match (&inputs[..], &sources[..]) {
        ([a, b], [source_a, source_b]) => {
            let mut options = DiffOptions::new(a, b);
            (options.source_a, options.source_b) = (source_a.clone(), source_b.clone());
            report_page::write_diff_page(&compare::diff(&options, &progress)?, &mut page)?;
        }
        (inputs, sources) => {
            let file = inputs.first().unwrap_or(&args.file);
            let mut options = ReportOptions::new(file);
            options.source = sources.first().cloned().flatten();
            options.statistics = args.stats;
            options.steps.clone_from(&args.trace);
            report_page::write_report(&options, &mut page, &progress)?;
        }
    }
    progress.clear();
    target.write(&page, quiet)?;
    Ok(ExitCode::SUCCESS)
}

/// Path of a page, `-` for standard output.
pub(crate) struct PageTarget {
    pub(crate) path: PathBuf,
    pub(crate) if_exists: IfExists,
}

impl PageTarget {
    pub(crate) fn is_stdout(&self) -> bool {
        self.path == Path::new("-")
    }

    /// Refuses a path at which the page cannot be written, before the inputs are read.
    pub(crate) fn check(&self, inputs: &[PathBuf]) -> Result<()> {
        if !self.is_stdout() {
            let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
            output::check_target(&self.path, &inputs, self.if_exists)?;
        }
        Ok(())
    }

    /// Writes the page, and says so on a terminal.
    pub(crate) fn write(&self, page: &[u8], quiet: bool) -> Result<()> {
        if self.is_stdout() {
            let mut out = io::stdout().lock();
            out.write_all(page)?;
            return Ok(out.flush()?);
        }
        let mut out = output::OutputFile::create(&self.path, page.len() as u64)?;
        out.write_all(page).with_context(|| format!("cannot write {}", self.path.display()))?;
        out.commit(self.if_exists)?;
        if !quiet {
            let path = escape_hidden(self.path.display());
            terminal::summary(format_args!("{path}: {}", format_bytes(page.len() as u64)));
        }
        Ok(())
    }
}

/// Returns the path of the page next to its last input, or in the current folder if that is at an address.
fn default_output(given: &[&PathBuf], sources: &[Option<InputSource>]) -> PathBuf {
    let extension = if given.len() > 1 { "diff.html" } else { "report.html" };
    match (given.last(), sources.last()) {
        (_, Some(Some(source))) => Path::new(&output::file_name(&source.path())).with_extension(extension),
        (Some(file), _) if file.as_path() != Path::new("-") => file.with_extension(extension),
        _ => PathBuf::from("-"),
    }
}
