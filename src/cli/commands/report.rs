//! `torch2carton report`: writes a report on a checkpoint as one HTML page.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use pipeline::format_bytes;
use report_page::ReportOptions;

use super::inspect_values::open_carton;
use crate::cli::args::Report;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::stdin;
use crate::cli::ui::terminal::{self, escape_hidden};

pub(crate) fn report(args: &Report, quiet: bool) -> Result<ExitCode> {
    output::refuse_remote(&args.file)?;
    let file = stdin::input_path(&args.file)?;
    let mut options = ReportOptions::new(&file);
    options.statistics = args.stats;
    options.steps.clone_from(&args.trace);
    let progress = Progress::new(quiet);
    let carton = carton_tools::is_carton(&file).then(|| open_carton(&file, &progress)).transpose()?;
    let target = args.output.clone().unwrap_or_else(|| default_output(&args.file));
    if target == Path::new("-") {
        let mut out = BufWriter::new(io::stdout().lock());
        report_page::write_report(&options, carton, &mut out, &progress)?;
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    let if_exists = args.existing.if_exists();
    output::check_target(&target, &[&file], if_exists)?;
    let mut page = Vec::new();
    report_page::write_report(&options, carton, &mut page, &progress)?;
    progress.clear();
    let mut out = output::Output::create(&target, page.len() as u64)?;
    out.write_all(&page).with_context(|| format!("cannot write {}", target.display()))?;
    out.commit(if_exists)?;
    if !quiet {
        terminal::summary(format_args!(
            "{}: {}",
            escape_hidden(target.display()),
            format_bytes(page.len() as u64)
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the path of the report next to its input.
fn default_output(file: &Path) -> PathBuf {
    if file == Path::new("-") { PathBuf::from("-") } else { file.with_extension("report.html") }
}
