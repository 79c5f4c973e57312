//! `torch2carton scan`: reports the code that a file would execute if it were unpickled.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use byte_source::{FileError, format_things};
use inspect::{FileScan, ScanOutcome, ScanSummary, Verdict};

use super::scan_sarif::SarifResults;
use super::scan_text;
use crate::cli::args::Scan;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::stdin;
use crate::cli::ui::terminal::{self, BOLD};

pub(crate) fn scan(args: &Scan, quiet: bool) -> Result<ExitCode> {
    let mut options = args.options.clone();
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    let mut sarif = SarifResults::default();
    // Findings come last, where a reader sees them.
    let mut findings = Vec::new();
    let mut has_unknown_globals = false;
    let mut print = |file: &FileScan| {
        has_unknown_globals |=
            file.verdict == Verdict::Unknown && matches!(file.outcome, ScanOutcome::Scanned(_));
        let mut shown = file.file.display().to_string();
        stdin::restore_typed_path(&mut shown);
        let renamed = (shown == "-").then(|| {
            let mut renamed = file.clone();
            renamed.file = shown.into();
            renamed
        });
        let file = renamed.as_ref().unwrap_or(file);
        if args.sarif {
            sarif.add(file);
            Ok(())
        } else if args.json {
            super::write_report_line(&mut out, file, &args.remote)
        } else {
            let is_file_skipped = matches!(file.outcome, ScanOutcome::Skipped { .. });
            match file.verdict {
                Verdict::Clean | Verdict::Skipped if quiet => Ok(()),
                Verdict::Skipped if is_file_skipped && !args.all => Ok(()),
                Verdict::Clean | Verdict::Skipped => scan_text::print_file_scan(args, file, &mut out),
                _ => scan_text::print_file_scan(args, file, &mut findings),
            }
        }
        .map_err(|reason| FileError::Output { what: "the listing", reason }.into())
    };
    options.inputs =
        args.files.iter().map(|file| args.remote.locate_or_stdin(file)).collect::<Result<_, _>>()?;
    let scanned = inspect::scan(&options, &Progress::new(true), &mut print);
    // Report what was found before an interruption.
    out.write_all(&findings)?;
    let summary = scanned?;
    let status = summary.exit_status(args.deny_unknown);
    if args.sarif {
        super::write_json_line(&mut out, &sarif.into_log(status))?;
    }
    let one = summary.files() + summary.empty == 1 && summary.skipped == 0;
    if !(quiet || args.json || args.sarif || one || summary.files() == 0) {
        print_total(&summary, &mut out)?;
    }
    out.flush()?;
    if !(quiet || args.json || args.sarif) && has_unknown_globals && summary.unsafe_files == 0 {
        terminal::note(
            "unknown names are of code that Python would import; --allow 'MODULE.*' takes those that you trust for known",
        );
    }
    Ok(ExitCode::from(status))
}

fn print_total(summary: &ScanSummary, out: &mut dyn Write) -> io::Result<()> {
    let ScanSummary { clean, unknown, unsafe_files, incomplete, not_a_checkpoint, skipped, .. } = summary;
    let files = format_things(summary.files(), "file");
    let counts = [
        (*clean, "clean"),
        (*unknown, "unknown"),
        (*unsafe_files, "unsafe"),
        (*incomplete, "incomplete"),
        (*not_a_checkpoint, "not a checkpoint"),
    ];
    // The first three are always there, so that a reader knows what was looked for.
    let shown = counts.iter().enumerate().filter(|(at, (count, _))| *at < 3 || *count > 0);
    let shown: Vec<String> = shown.map(|(_, (count, name))| format!("{count} {name}")).collect();
    let skipped = match skipped {
        0 => String::new(),
        others => format!("; {} skipped", format_things(*others, "other file")),
    };
    writeln!(out, "{BOLD}{files}: {}{BOLD:#}{skipped}", shown.join(", "))
}
