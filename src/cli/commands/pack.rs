//! `torch2carton pack`: packs a folder into a carton.

use std::process::ExitCode;

use anyhow::Result;
use byte_source::{format_bytes, format_things};

use crate::cli::args::Pack;
use crate::cli::ui::carton_advice;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::terminal::{self, BOLD, DIM, escape_hidden};

pub(crate) fn pack(args: &Pack, quiet: bool) -> Result<ExitCode> {
    let mut options = args.options.clone();
    options.folder = args.remote.locate(&args.directory)?;
    let progress = Progress::new(quiet);
    let report = carton_tools::pack(&options, &progress)?;
    progress.clear();
    if !quiet {
        report
            .notes
            .iter()
            .for_each(|note| terminal::note(carton_advice::carton_note_text(note, &report.file)));
        terminal::summary(format_args!("{BOLD}{}{BOLD:#}", escape_hidden(&report.output)));
        let holds = format!("{}, {}", format_things(report.files, "file"), format_bytes(report.nbytes));
        for (label, value) in [("contents", &holds), ("manifest", &report.manifest_sha256)] {
            terminal::summary(format_args!("  {DIM}{label:<10}{DIM:#}{value}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}
