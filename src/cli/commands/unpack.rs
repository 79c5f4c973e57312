//! `torch2carton unpack`: writes the files of a carton into a folder.

use std::process::ExitCode;

use anyhow::Result;
use byte_source::{format_bytes, format_things};

use crate::cli::args::Unpack;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::terminal::{self, escape_hidden};
use crate::cli::ui::{carton_advice, stdin};

pub(crate) fn unpack(args: &Unpack, quiet: bool) -> Result<ExitCode> {
    stdin::reject(&args.file, "unpack")?;
    let mut options = args.options.clone();
    options.file = args.remote.locate(&args.file)?;
    let progress = Progress::new(quiet);
    let report = carton_tools::unpack(&options, &progress)?;
    progress.clear();
    if !quiet {
        report
            .notes
            .iter()
            .for_each(|note| terminal::note(carton_advice::carton_note_text(note, &report.file)));
        terminal::summary(format_args!(
            "{}: {}, {}",
            escape_hidden(&report.output),
            format_things(report.files, "file"),
            format_bytes(report.nbytes)
        ));
    }
    Ok(ExitCode::SUCCESS)
}
