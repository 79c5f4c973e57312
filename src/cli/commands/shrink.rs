//! `torch2carton shrink`: moves files of a carton into a folder that many cartons share.

use std::process::ExitCode;

use anyhow::Result;
use byte_source::{format_bytes, format_things};

use crate::cli::args::Shrink;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::terminal::{self, escape_hidden};

pub(crate) fn shrink(args: &Shrink, quiet: bool) -> Result<ExitCode> {
    // Before a carton at an address is opened.
    let mut options = args.options.clone();
    [&options.output, &options.blobs].into_iter().try_for_each(|path| output::refuse_remote_output(path))?;
    options.file = args.remote.locate(&args.file)?;
    let progress = Progress::new(quiet);
    let report = carton_tools::shrink(&options, &progress)?;
    progress.clear();
    if !quiet {
        terminal::summary(format_args!(
            "{}: {}; {} ({}) moved to {}",
            escape_hidden(&report.output),
            format_bytes(report.nbytes),
            format_things(report.moved_files, "file"),
            format_bytes(report.moved_nbytes),
            escape_hidden(&report.blobs)
        ));
    }
    Ok(ExitCode::SUCCESS)
}
