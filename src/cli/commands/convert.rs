//! `torch2carton convert`: converts a checkpoint into a carton, or into another file of tensors.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use super::convert_each;
use super::convert_report::{error_object, print_report, with_advice};
use crate::cli::args::Convert;
use crate::cli::ui::invocation::UsageError;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::stdin;

pub(crate) fn convert(args: &Convert, quiet: bool) -> Result<ExitCode> {
    if args.options.output.as_deref() == Some(Path::new("-")) {
        return Err(UsageError(
            "-o -: an output cannot go to standard output, because some of its first bytes are known last; name a file"
                .to_owned(),
        )
        .into());
    }
    args.files.iter().try_for_each(|file| stdin::reject(file, "convert"))?;
    if args.each {
        return convert_each::convert_each(args, quiet);
    }
    let progress = Progress::new(quiet || args.json);
    let converted = convert::convert(&args.options()?, &progress);
    progress.clear();
    let report = converted.or_else(|error| {
        let (code, error) = (error.kind().name(), with_advice(error, args));
        if args.json {
            let files: Vec<String> =
                args.files.iter().map(|file| output::shown_path(file).display().to_string()).collect();
            let object = error_object(&files.join(", "), code, &error);
            super::write_json_line(&mut io::stdout().lock(), &object)?;
        }
        Err(error)
    })?;
    if args.json {
        super::write_report_line(&mut io::stdout().lock(), &report, &args.remote)?;
    } else {
        print_report(&report, quiet, false)?;
    }
    Ok(ExitCode::SUCCESS)
}
