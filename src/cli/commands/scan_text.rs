//! Text of a file's scan: a line that says what matters, and the findings below it, the most dangerous ones first.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use byte_source::format_things;
use inspect::{
    CUSTOM_CODE_NOTE, CustomClass, FileScan, GlobalUse, GlobalUseKind, Risk, ScanOutcome, ScannedFile,
    Verdict, globals_of_risk, linked_folder_note,
};
use torch_import::{OmittedCounts, PlaceStep};

use super::scan_headline::{call_text, headline, list_of_names, unread_rows};
use crate::cli::args::Scan;
use crate::cli::ui::checkpoint_advice::model_advice;
use crate::cli::ui::terminal::{BOLD, DIM, escape_hidden};

/// Maximum number of lines of each kind without `--all`.
const LINES_MAX: usize = 3;

const RED: Style = AnsiColor::Red.on_default().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();

pub(super) fn print_file_scan(args: &Scan, file: &FileScan, out: &mut dyn Write) -> io::Result<()> {
    let path = escape_hidden(file.file.display());
    let verdict = verdict_text(file.verdict);
    let style = verdict_style(file.verdict);
    match &file.outcome {
        ScanOutcome::Scanned(scan) if file.verdict == Verdict::Clean => {
            writeln!(out, "{BOLD}{path}{BOLD:#}: {style}{verdict}{style:#} ({})", contents_text(scan))?;
            print_findings(args, file, scan, out)
        }
        ScanOutcome::Scanned(scan) => {
            let headline = escape_hidden(headline(file.verdict, scan));
            writeln!(out, "{BOLD}{path}{BOLD:#}: {style}{verdict}{style:#}  {headline}")?;
            writeln!(out, "  {DIM}{}{DIM:#}", contents_text(scan))?;
            print_findings(args, file, scan, out)
        }
        ScanOutcome::NamesCode { classes } => {
            let places: Vec<String> = places(classes);
            let named = escape_hidden(list_of_names(&places));
            let is_code = file.file.extension().is_some_and(|extension| extension == "py");
            let verb = if is_code { "is" } else { "names" };
            writeln!(
                out,
                "{BOLD}{path}{BOLD:#}: {style}{verdict}{style:#}  {verb} Python code, which is not scanned: {named}"
            )?;
            let rows = classes.iter().map(|it| format!("{}: {} of {}", it.key, it.class, it.place()));
            print_rows(args, "code", rows.collect(), 0, out)?;
            print_rows(args, "note", vec![CUSTOM_CODE_NOTE.to_owned()], 0, out)
        }
        ScanOutcome::NotScanned { reason } => {
            let reason = escape_hidden(reason);
            let advice = if file.file.exists() { None } else { model_advice(&file.file) }.unwrap_or_default();
            writeln!(out, "{BOLD}{path}{BOLD:#}: {style}{verdict}{style:#}: {reason}{advice}")
        }
        ScanOutcome::Skipped { reason } => {
            let reason = escape_hidden(reason);
            writeln!(out, "{BOLD}{path}{BOLD:#}: {verdict}: {reason}")
        }
        ScanOutcome::LinkedFolder { target } => {
            let note = escape_hidden(linked_folder_note(target));
            writeln!(out, "{BOLD}{path}{BOLD:#}: {verdict}: {note}")
        }
    }
}

/// Returns the verdict for a person; the one that matters most is in capital letters.
pub(super) fn verdict_text(verdict: Verdict) -> String {
    match verdict {
        Verdict::Unsafe => "UNSAFE".to_owned(),
        verdict => verdict.name().replace('_', " "),
    }
}

fn verdict_style(verdict: Verdict) -> Style {
    match verdict {
        Verdict::Unsafe => RED,
        Verdict::Unknown | Verdict::Incomplete => YELLOW,
        _ => Style::new(),
    }
}

/// Returns the places of code, without duplicates.
fn places(classes: &[CustomClass]) -> Vec<String> {
    let mut places: Vec<String> = Vec::new();
    for place in classes.iter().map(CustomClass::place) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// Returns the format of a file, and how many pickles and globals it has: `zip, 1 pickle, 3 known globals`.
fn contents_text(scan: &ScannedFile) -> String {
    let members = members_text(scan);
    format!("{}{members}, {}, {}", scan.format, format_things(scan.count, "pickle"), global_counts_text(scan))
}

/// Returns the first names of the archives in an archive, such as the checkpoints that are in one; empty if there are none.
fn members_text(scan: &ScannedFile) -> String {
    const SHOWN: usize = 4;
    let mut names: Vec<&str> = Vec::new();
    for pickle in &scan.pickles {
        if let [PlaceStep::Record(name), _, ..] = pickle.place.0.as_slice()
            && !names.contains(&name.as_str())
        {
            names.push(name);
        }
    }
    let more = match names.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown = names.get(..SHOWN.min(names.len())).unwrap_or_default().join(", ");
    if shown.is_empty() { shown } else { format!(" of {shown}{more}") }
}

/// Counts the globals by risk: `2 known, 1 unknown and 3 dangerous globals`.
fn global_counts_text(scan: &ScannedFile) -> String {
    let count = |risk: Risk| globals_of_risk(scan, risk).len();
    let risks = [Risk::Unknown, Risk::Unreviewed, Risk::Dangerous];
    let mut counts: Vec<_> =
        risks.map(|risk| (count(risk), risk.name())).into_iter().filter(|it| it.0 > 0).collect();
    let known = count(Risk::Known);
    let Some((last, risk)) = counts.pop() else { return format_things(known, "known global") };
    let others: Vec<String> = counts.iter().map(|(count, risk)| format!(", {count} {risk}")).collect();
    format!("{known} known{} and {}", others.concat(), format_things(last, &format!("{risk} global")))
}

fn print_findings(args: &Scan, file: &FileScan, scan: &ScannedFile, out: &mut dyn Write) -> io::Result<()> {
    let verdict = file.verdict;
    for risk in [Risk::Dangerous, Risk::Unreviewed, Risk::Unknown] {
        let (rows, unlisted) = global_rows(args, scan, risk);
        print_rows(args, risk.name(), rows, unlisted, out)?;
    }
    let allowed = file.allowed.iter().map(|it| {
        let reason = it.reason.iter().zip(&it.date).map(|(reason, date)| format!(": {reason} ({date})"));
        format!("{} by the pattern {}{}", it.global, it.pattern, reason.collect::<String>())
    });
    print_rows(args, "allowed", allowed.collect(), 0, out)?;
    if args.all {
        let (rows, unlisted) = global_rows(args, scan, Risk::Known);
        print_rows(args, Risk::Known.name(), rows, unlisted, out)?;
    }
    // What the first line says is not repeated.
    let has_dangerous = scan.uses().any(|(_, found)| found.risk == Risk::Dangerous);
    let said = usize::from(verdict == Verdict::Unsafe && !has_dangerous);
    let irregular = scan.findings.iter().skip(said).map(|finding| finding.text.clone()).collect();
    print_rows(args, "irregular", irregular, 0, out)?;
    let said = usize::from(verdict == Verdict::Incomplete);
    print_rows(args, "unread", unread_rows(scan).into_iter().skip(said).collect(), 0, out)?;
    let omitted = omitted_text(&scan.omitted).into_iter();
    print_rows(args, "note", omitted.chain(scan.notes.iter().cloned()).collect(), 0, out)
}

/// Prints the lines of a kind: the first ones, and how many there are beyond them. `unlisted` more are not in `rows`.
fn print_rows(
    args: &Scan,
    kind: &str,
    rows: Vec<String>,
    unlisted: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let style = if kind == Risk::Dangerous.name() { RED } else { DIM };
    let shown = if args.all { rows.len() } else { LINES_MAX };
    let more = rows.len().saturating_sub(shown).saturating_add(unlisted);
    for row in rows.into_iter().take(shown) {
        writeln!(out, "  {style}{kind:<10}{style:#} {}", escape_hidden(row))?;
    }
    match (more, args.all) {
        (0, _) => Ok(()),
        (more, true) => writeln!(out, "  {:<10} … {more} more, which are not listed", ""),
        (more, false) => writeln!(out, "  {:<10} … {more} more, which --all shows", ""),
    }
}

/// Returns a line for each call of the globals of a risk, or for the global if it is not called, and the number of calls that
/// the scan did not list. Without `--all`, globals that are not dangerous have one line.
fn global_rows(args: &Scan, scan: &ScannedFile, risk: Risk) -> (Vec<String>, usize) {
    let (mut rows, mut unlisted) = (Vec::new(), 0_usize);
    for (pickle, found) in scan.uses().filter(|(_, found)| found.risk == risk) {
        let start =
            if pickle.offset > 0 { format!(" from byte {} on", pickle.offset) } else { String::new() };
        let place = format!("{}{start}", pickle.place);
        let GlobalUse { global, calls, unlisted_calls, .. } = found;
        let all = args.all || risk == Risk::Dangerous;
        // A call of several globals is listed once.
        let lines = calls.iter().map(|call| {
            format!("{} at 0x{:x} of {place} ({})", call_text(global, call), call.offset, call.opcode)
        });
        if all && risk != Risk::Known && !calls.is_empty() {
            for line in lines {
                if !rows.contains(&line) {
                    rows.push(line);
                }
            }
            unlisted = unlisted.saturating_add(*unlisted_calls);
            if risk == Risk::Unreviewed {
                rows.push(format!(
                    "{} {}, which nobody has judged",
                    global.name_with_alias(),
                    uses_text(found)
                ));
            }
            continue;
        }
        let mut row = format!("{} at 0x{:x} of {place}", global.name_with_alias(), global.offset);
        if found.after_error {
            row.push_str(", after the error that ends it");
        }
        if risk == Risk::Unreviewed {
            row = format!("{row}: {}, which nobody has judged", uses_text(found));
        } else if let Some(call) = calls.iter().find(|call| call.has_arguments) {
            row = format!("{row}: {}", call_text(global, call));
        }
        rows.push(row);
    }
    (rows, unlisted)
}

/// Returns the uses of a global that were not judged.
fn uses_text(found: &GlobalUse) -> String {
    let texts: Vec<&str> = found.global.findings().iter().map(GlobalUseKind::text).collect();
    if texts.is_empty() { "is named".to_owned() } else { texts.join(", ") }
}

/// Returns how many entries the scan did not list; `None` if it listed all.
fn omitted_text(omitted: &OmittedCounts) -> Option<String> {
    let OmittedCounts { globals, pickles, findings, missed } = omitted;
    let counts = [
        (globals, "global"),
        (pickles, "unread pickle"),
        (findings, "irregularity"),
        (missed, "unread part"),
    ];
    let counts = counts.iter().filter(|(count, _)| **count > 0).map(|(count, what)| match *what {
        "irregularity" if **count != 1 => format!("{count} irregularities"),
        what => format_things(**count, what),
    });
    let counts = counts.collect::<Vec<_>>().join(", ");
    (omitted.total() > 0).then(|| format!("{counts} more, which are not listed"))
}
