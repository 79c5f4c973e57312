//! `torch2carton report`: writes a report on a checkpoint, or on the differences of two, as one HTML page.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use byte_source::{Location, format_bytes};
use inspect::DiffOptions;
use inspect::page::ReportOptions;
use output::IfExists;

use crate::cli::args::Report;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::terminal::{self, escape_hidden};

pub(crate) fn report(args: &Report, quiet: bool) -> Result<ExitCode> {
    let progress = Progress::new(quiet);
    let given: Vec<&PathBuf> = [Some(&args.file), args.other.as_ref()].into_iter().flatten().collect();
    let inputs: Vec<Location> =
        given.iter().map(|file| args.remote.locate_or_stdin(file)).collect::<Result<_>>()?;
    let target = PageTarget {
        path: args.output.clone().unwrap_or_else(|| default_output(&given, &inputs)),
        if_exists: args.if_exists,
    };
    target.check(&inputs.iter().map(|input| input.path().to_owned()).collect::<Vec<_>>())?;
    let mut page = Vec::new();
    match &inputs[..] {
        [a, b] => {
            let options = DiffOptions::new(a.clone(), b.clone());
            inspect::page::write_diff_page(&inspect::diff(&options, &progress)?, &mut page)?;
        }
        inputs => {
            let mut options = ReportOptions::new(inputs.first().cloned().unwrap_or_default());
            options.statistics = args.stats;
            options.steps.clone_from(&args.trace);
            inspect::page::write_report(&options, &mut page, &progress)?;
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
fn default_output(given: &[&PathBuf], inputs: &[Location]) -> PathBuf {
    let extension = if given.len() > 1 { "diff.html" } else { "report.html" };
    match (given.last(), inputs.last()) {
        (_, Some(input)) if !input.is_local() => {
            Path::new(&output::file_name(input.path())).with_extension(extension)
        }
        (Some(file), _) if file.as_path() != Path::new("-") => file.with_extension(extension),
        _ => PathBuf::from("-"),
    }
}
