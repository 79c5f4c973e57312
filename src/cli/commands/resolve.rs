//! `torch2carton resolve`: fetches the files that a carton leaves out, and writes the complete carton.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use carton_tools::ResolveOptions;
use pipeline::{format_bytes, format_things};

use crate::cli::args::{RemoteArgs, Resolve};
use crate::cli::ui::carton_advice;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::terminal::{self, escape_hidden};

pub(crate) fn resolve(args: &Resolve, quiet: bool) -> Result<ExitCode> {
    let mut options = ResolveOptions::new(output::shown_path(&args.file), &args.output);
    let remote = RemoteArgs::new(args.allow_http, args.timeout, args.cache.clone());
    options.source = remote.open(&args.file)?;
    options.if_exists = args.existing.if_exists();
    options.cache.clone_from(&args.cache);
    options.allow_http = args.allow_http;
    options.max_size = args.max_size;
    options.timeout = Duration::from_secs(args.timeout);
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
