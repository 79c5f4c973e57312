//! `torch2carton scan`: reports the code that a file would execute if it were unpickled.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use pipeline::{
    Error, FileScan, GlobalUse, OmittedCounts, Risk, ScanOptions, ScanOutcome, ScanSummary,
    ScannedFile as Found, Verdict, format_things, globals_of_risk, linked_folder_note,
};

use crate::cli::args::Scan;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::terminal::{BOLD, DIM, escape_hidden};

/// Maximum number of unknown globals named in a verdict, and of calls shown per global without `--all`.
const SHOWN_MAX: usize = 3;

pub(crate) fn scan(args: &Scan, quiet: bool) -> Result<ExitCode> {
    let mut options = ScanOptions::new(args.files.clone());
    options.checksums = args.checksums;
    options.deny_unknown = args.deny_unknown;
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    let summary = pipeline::scan(&options, &Progress::new(true), &mut |file| {
        if args.json {
            super::write_json_line(&mut out, file)
        } else if quiet && matches!(file.verdict, Verdict::Clean | Verdict::Skipped) {
            Ok(())
        } else {
            print_file_scan(args, file, &mut out)
        }
        .map_err(Error::Output)
    })?;
    let one = summary.files() + summary.empty == 1 && summary.skipped == 0;
    if !(quiet || args.json || one || summary.files() == 0) {
        print_total(&summary, &mut out)?;
    }
    out.flush()?;
    Ok(ExitCode::from(match summary.verdict() {
        Verdict::Clean | Verdict::Skipped => 0,
        Verdict::Findings => 1,
        Verdict::NotScanned => 2,
    }))
}

fn print_total(summary: &ScanSummary, out: &mut dyn Write) -> io::Result<()> {
    let ScanSummary { clean, findings, not_scanned, skipped, .. } = summary;
    let files = format_things(summary.files(), "file");
    let skipped = match skipped {
        0 => String::new(),
        others => format!("; {} skipped", format_things(*others, "other file")),
    };
    writeln!(
        out,
        "{BOLD}{files}: {clean} clean, {findings} with findings, {not_scanned} not scanned to the end{BOLD:#}{skipped}"
    )
}

/// Returns the verdict text of a clean file: `clean`, or the unknown globals with a hint about `--deny-unknown`.
fn clean_verdict_text(unknown: &BTreeSet<(&str, &str)>) -> String {
    if unknown.is_empty() {
        return "clean".to_owned();
    }
    let first: Vec<String> = unknown
        .iter()
        .take(SHOWN_MAX)
        .map(|(module, name)| escape_hidden(format!("{module}.{name}")))
        .collect();
    let more = match unknown.len().saturating_sub(SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (globals, first) = (format_things(unknown.len(), "unknown global"), first.join(", "));
    let findings = if unknown.len() == 1 { "it a finding" } else { "them findings" };
    format!("clean but for {globals}: {first}{more} (--deny-unknown makes {findings})")
}

fn print_file_scan(args: &Scan, file: &FileScan, out: &mut dyn Write) -> io::Result<()> {
    match &file.outcome {
        ScanOutcome::Scanned(scan) => print_scanned_file(args, file, scan, out),
        ScanOutcome::NotScanned { reason } => {
            let path = escape_hidden(file.file.display());
            writeln!(out, "{BOLD}{path}{BOLD:#}: not scanned: {}", escape_hidden(reason))
        }
        ScanOutcome::LinkedFolder { target } => {
            let path = escape_hidden(file.file.display());
            writeln!(out, "{BOLD}{path}{BOLD:#}: skipped: {}", escape_hidden(linked_folder_note(target)))
        }
    }
}

fn print_scanned_file(args: &Scan, file: &FileScan, scan: &Found, out: &mut dyn Write) -> io::Result<()> {
    let unknown_names = globals_of_risk(scan, Risk::Unknown);
    let (known, unknown) = (globals_of_risk(scan, Risk::Known).len(), unknown_names.len());
    let dangerous = globals_of_risk(scan, Risk::Dangerous).len();
    let pickles = format!("{}, {}", scan.format, format_things(scan.count, "pickle"));
    let globals = match (dangerous, unknown) {
        (0, 0) => format_things(known, "known global"),
        (0, _) => format!("{known} known and {}", format_things(unknown, "unknown global")),
        _ => format!("{known} known, {unknown} unknown and {}", format_things(dangerous, "dangerous global")),
    };
    let verdict = match file.verdict {
        Verdict::NotScanned => "not scanned to the end".to_owned(),
        Verdict::Clean => clean_verdict_text(&unknown_names),
        Verdict::Findings | Verdict::Skipped => file.verdict.name().to_owned(),
    };
    writeln!(out, "{BOLD}{}{BOLD:#}: {verdict} ({pickles}, {globals})", escape_hidden(file.file.display()))?;
    for risk in [Risk::Dangerous, Risk::Unknown, Risk::Known] {
        if risk == Risk::Known && !args.all {
            continue;
        }
        for (pickle, found) in scan.uses().filter(|(_, found)| found.risk == risk) {
            let at =
                if pickle.offset > 0 { format!(" from byte {} on", pickle.offset) } else { String::new() };
            let behind = if found.after_error { ", after the error that ends it" } else { "" };
            let GlobalUse { global, calls, unlisted_calls: more, .. } = found;
            writeln!(
                out,
                "  {DIM}{:<10}{DIM:#} {} at 0x{:x} of {}{at}{behind}",
                risk.name(),
                escape_hidden(global.name_with_alias()),
                global.offset,
                escape_hidden(&pickle.place)
            )?;
            let all = risk == Risk::Dangerous || args.all || args.deny_unknown;
            // By default, only calls with arguments are listed: an argument may be a command, while a call without arguments
            // makes an empty instance.
            let shown = calls.iter().filter(|call| all || call.has_arguments);
            for call in shown.take(if all { calls.len() } else { SHOWN_MAX }) {
                writeln!(
                    out,
                    "  {:<12} {} at 0x{:x}: {}",
                    "",
                    call.opcode,
                    call.offset,
                    escape_hidden(&call.text)
                )?;
            }
            let left = calls.iter().filter(|call| call.has_arguments).count().saturating_sub(SHOWN_MAX);
            if !all && left > 0 {
                writeln!(out, "  {:<12} and more, which --all shows", "")?;
            }
            if all && *more > 0 {
                writeln!(out, "  {:<12} and {more} more times", "")?;
            }
        }
    }
    for finding in &scan.findings {
        writeln!(out, "  {DIM}{:<10}{DIM:#} {}", "irregular", escape_hidden(&finding.text))?;
    }
    for pickle in &scan.pickles {
        if let Some(error) = &pickle.error {
            writeln!(
                out,
                "  {DIM}{:<10}{DIM:#} {}: {}",
                "unread",
                escape_hidden(&pickle.place),
                escape_hidden(error)
            )?;
        }
    }
    for missed in &scan.missed {
        writeln!(out, "  {DIM}{:<10}{DIM:#} {}", "unread", escape_hidden(missed))?;
    }
    if scan.omitted.total() > 0 {
        let OmittedCounts { globals, pickles, findings, missed } = scan.omitted;
        let counts = [
            (globals, "global"),
            (pickles, "unread pickle"),
            (findings, "irregularity"),
            (missed, "unread part"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| match *what {
            "irregularity" if *count != 1 => format!("{count} irregularities"),
            what => format_things(*count, what),
        });
        let counts = counts.collect::<Vec<_>>().join(", ");
        writeln!(out, "  {DIM}{:<10}{DIM:#} {counts} more, which are not listed", "note")?;
    }
    for note in &scan.notes {
        writeln!(out, "  {DIM}{:<10}{DIM:#} {}", "note", escape_hidden(note))?;
    }
    Ok(())
}
