//! `torch2carton resolve`: the files that a carton leaves out come back into it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use carton_tools::ResolveOptions;
use pipeline::{counted, size};

use crate::cli::args::Resolve;
use crate::cli::ui::carton_advice;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::terminal::{self, safe};

pub(crate) fn resolve(args: &Resolve, quiet: bool) -> Result<ExitCode> {
    let options = ResolveOptions {
        file: args.file.clone(),
        output: args.output.clone(),
        if_exists: args.existing.if_exists(),
        cache: args.cache.clone(),
        allow_http: args.allow_http,
        max_size: args.max_size,
        timeout: Duration::from_secs(args.timeout),
    };
    let progress = Progress::new(quiet);
    let report = carton_tools::resolve(&options, &progress)?;
    progress.clear();
    if !quiet {
        report.notes.iter().for_each(|note| terminal::note(carton_advice::note(note, &report.file)));
        let output = safe(&report.output);
        terminal::summary(format_args!(
            "{output}: {}, {} fetched",
            size(report.nbytes),
            counted(report.fetched_files, "file")
        ));
    }
    Ok(ExitCode::SUCCESS)
}
