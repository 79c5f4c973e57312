//! `torch2carton resolve`: fetches the files that a carton leaves out, and writes the complete carton.

use std::process::ExitCode;

use anyhow::Result;
use byte_source::{format_bytes, format_things};

use crate::cli::args::{RemoteArgs, Resolve};
use crate::cli::ui::carton_advice;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::terminal::{self, escape_hidden};

pub(crate) fn resolve(args: &Resolve, quiet: bool) -> Result<ExitCode> {
    let mut options = args.options.clone();
    let remote = RemoteArgs::new(options.allow_http, options.timeout.as_secs(), options.cache.clone());
    options.file = remote.locate(&args.file)?;
    let progress = Progress::new(quiet);
    let report = carton_tools::resolve(&options, &progress)?;
    progress.clear();
    if !quiet {
        report
            .notes
            .iter()
            .for_each(|note| terminal::note(carton_advice::carton_note_text(note, &report.file)));
        let output = escape_hidden(&report.output);
        terminal::summary(format_args!(
            "{output}: {}, {} fetched",
            format_bytes(report.nbytes),
            format_things(report.fetched_files, "file")
        ));
    }
    Ok(ExitCode::SUCCESS)
}
