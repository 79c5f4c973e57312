//! `torch2carton scan`: reports the code that a file would execute if it were unpickled.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use pipeline::{
    Error, FileScan, Omitted, Outcome, Risk, ScanOptions, ScanSummary, ScannedFile as Found, Use, Verdict,
    counted, globals_of_risk, not_followed,
};

use crate::cli::args::Scan;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::terminal::{BOLD, DIM, safe};

/// Maximum number of unknown globals named in a verdict, and of calls shown per global without `--all`.
const SHOWN: usize = 3;

pub(crate) fn scan(args: &Scan, quiet: bool) -> Result<ExitCode> {
    let mut options = ScanOptions::new(args.files.clone());
    options.checksums = args.checksums;
    options.deny_unknown = args.deny_unknown;
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    let summary = pipeline::scan(&options, &Progress::new(true), &mut |file| {
        if args.json {
            super::json(&mut out, file)
        } else if quiet && matches!(file.verdict, Verdict::Clean | Verdict::Skipped) {
            Ok(())
        } else {
            print(args, file, &mut out)
        }
        .map_err(Error::Output)
    })?;
    let one = summary.files() + summary.empty == 1 && summary.skipped == 0;
    if !(quiet || args.json || one || summary.files() == 0) {
        total(&summary, &mut out)?;
    }
    out.flush()?;
    Ok(ExitCode::from(match summary.verdict() {
        Verdict::Clean | Verdict::Skipped => 0,
        Verdict::Findings => 1,
        Verdict::NotScanned => 2,
    }))
}

fn total(summary: &ScanSummary, out: &mut dyn Write) -> io::Result<()> {
    let ScanSummary { clean, findings, not_scanned, skipped, .. } = summary;
    let files = counted(summary.files(), "file");
    let skipped = match skipped {
        0 => String::new(),
        others => format!("; {} skipped", counted(*others, "other file")),
    };
    writeln!(
        out,
        "{BOLD}{files}: {clean} clean, {findings} with findings, {not_scanned} not scanned to the end{BOLD:#}{skipped}"
    )
}

/// Returns the verdict text of a clean file: `clean`, or the unknown globals with a hint about `--deny-unknown`.
fn clean(unknown: &BTreeSet<(&str, &str)>) -> String {
    if unknown.is_empty() {
        return "clean".to_owned();
    }
    let first: Vec<String> =
        unknown.iter().take(SHOWN).map(|(module, name)| safe(format!("{module}.{name}"))).collect();
    let more = match unknown.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (globals, first) = (counted(unknown.len(), "unknown global"), first.join(", "));
    let findings = if unknown.len() == 1 { "it a finding" } else { "them findings" };
    format!("clean but for {globals}: {first}{more} (--deny-unknown makes {findings})")
}

fn print(args: &Scan, file: &FileScan, out: &mut dyn Write) -> io::Result<()> {
    match &file.outcome {
        Outcome::Scanned(scan) => found(args, file, scan, out),
        Outcome::NotScanned { reason } => {
            let path = safe(file.file.display());
            writeln!(out, "{BOLD}{path}{BOLD:#}: not scanned: {}", safe(reason))
        }
        Outcome::LinkedFolder { target } => {
            let path = safe(file.file.display());
            writeln!(out, "{BOLD}{path}{BOLD:#}: skipped: {}", safe(not_followed(target)))
        }
    }
}

fn found(args: &Scan, file: &FileScan, scan: &Found, out: &mut dyn Write) -> io::Result<()> {
    let unknown_names = globals_of_risk(scan, Risk::Unknown);
    let (known, unknown) = (globals_of_risk(scan, Risk::Known).len(), unknown_names.len());
    let dangerous = globals_of_risk(scan, Risk::Dangerous).len();
    let pickles = format!("{}, {}", scan.format, counted(scan.count, "pickle"));
    let globals = match (dangerous, unknown) {
        (0, 0) => counted(known, "known global"),
        (0, _) => format!("{known} known and {}", counted(unknown, "unknown global")),
        _ => format!("{known} known, {unknown} unknown and {}", counted(dangerous, "dangerous global")),
    };
    let verdict = match file.verdict {
        Verdict::NotScanned => "not scanned to the end".to_owned(),
        Verdict::Clean => clean(&unknown_names),
        Verdict::Findings | Verdict::Skipped => file.verdict.name().to_owned(),
    };
    writeln!(out, "{BOLD}{}{BOLD:#}: {verdict} ({pickles}, {globals})", safe(file.file.display()))?;
    for risk in [Risk::Dangerous, Risk::Unknown, Risk::Known] {
        if risk == Risk::Known && !args.all {
            continue;
        }
        for (pickle, found) in scan.uses().filter(|(_, found)| found.risk == risk) {
            let at =
                if pickle.offset > 0 { format!(" from byte {} on", pickle.offset) } else { String::new() };
            let behind = if found.after_error { ", after the error that ends it" } else { "" };
            let Use { global, calls, more, .. } = found;
            writeln!(
                out,
                "  {DIM}{:<10}{DIM:#} {} at 0x{:x} of {}{at}{behind}",
                risk.name(),
                safe(global.described()),
                global.offset,
                safe(&pickle.place)
            )?;
            let all = risk == Risk::Dangerous || args.all || args.deny_unknown;
            // By default, only calls with arguments are listed: an argument may be a command, while a call without arguments
            // makes an empty instance.
            let shown = calls.iter().filter(|call| all || call.has_arguments);
            for call in shown.take(if all { calls.len() } else { SHOWN }) {
                writeln!(out, "  {:<12} {} at 0x{:x}: {}", "", call.opcode, call.offset, safe(&call.text))?;
            }
            let left = calls.iter().filter(|call| call.has_arguments).count().saturating_sub(SHOWN);
            if !all && left > 0 {
                writeln!(out, "  {:<12} and more, which --all shows", "")?;
            }
            if all && *more > 0 {
                writeln!(out, "  {:<12} and {more} more times", "")?;
            }
        }
    }
    for finding in &scan.findings {
        writeln!(out, "  {DIM}{:<10}{DIM:#} {}", "irregular", safe(&finding.text))?;
    }
    for pickle in &scan.pickles {
        if let Some(error) = &pickle.error {
            writeln!(out, "  {DIM}{:<10}{DIM:#} {}: {}", "unread", safe(&pickle.place), safe(error))?;
        }
    }
    for missed in &scan.missed {
        writeln!(out, "  {DIM}{:<10}{DIM:#} {}", "unread", safe(missed))?;
    }
    if scan.omitted.total() > 0 {
        let Omitted { globals, pickles, findings, missed } = scan.omitted;
        let counts = [
            (globals, "global"),
            (pickles, "unread pickle"),
            (findings, "irregularity"),
            (missed, "unread part"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| match *what {
            "irregularity" if *count != 1 => format!("{count} irregularities"),
            what => counted(*count, what),
        });
        let counts = counts.collect::<Vec<_>>().join(", ");
        writeln!(out, "  {DIM}{:<10}{DIM:#} {counts} more, which are not listed", "note")?;
    }
    for note in &scan.notes {
        writeln!(out, "  {DIM}{:<10}{DIM:#} {}", "note", safe(note))?;
    }
    Ok(())
}
