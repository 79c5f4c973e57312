//! `torch2carton scan`: what a file would do to whoever loads it with Python's own unpickler.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::{Value as Json, json};
use torch_import::{Risk, Scan, Step, Use};

use crate::cli;
use crate::terminal::{BOLD, DIM, counted, safe};

/// Version of the objects that `--json` prints.
const SCHEMA_VERSION: u32 = 1;
/// Unknown globals that a verdict names, and calls of one that are shown without `--all`.
const SHOWN: usize = 3;

/// What became of the files.
#[derive(Default)]
pub(crate) struct Outcome {
    clean: usize,
    found: usize,
    not_scanned: usize,
    /// Files in folders that are no checkpoints by content and name.
    others: usize,
    /// Folders without a file that can be scanned: who names one expects that there is.
    empty: usize,
}

impl Outcome {
    /// 1 when there are findings; else 2 when something was not scanned to its end.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self { found: 1.., .. } => ExitCode::from(1),
            Self { not_scanned: 1.., .. } | Self { empty: 1.., .. } => ExitCode::from(2),
            _ => ExitCode::SUCCESS,
        }
    }

    fn files(&self) -> usize {
        self.clean.saturating_add(self.found).saturating_add(self.not_scanned)
    }
}

pub(crate) fn run(args: &cli::Scan, quiet: bool) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    for path in &args.files {
        store::refuse_remote(path)?;
    }
    for path in &args.files {
        if path.is_dir() {
            folder(args, quiet, path, &mut out, &mut outcome)?;
        } else if !path.exists() {
            outcome.not_scanned = outcome.not_scanned.saturating_add(1);
            not_scanned(args, path, "there is no such file", &mut out)?;
        } else {
            one(args, quiet, path, false, &mut out, &mut outcome)?;
        }
    }
    let only_one = outcome.files().saturating_add(outcome.empty) == 1 && outcome.others == 0;
    if !(quiet || args.json || only_one || outcome.files() == 0) {
        let Outcome { clean, found, not_scanned, others, .. } = outcome;
        let files = counted(outcome.files(), "file");
        let others = match others {
            0 => String::new(),
            others => format!("; {} skipped", counted(others, "other file")),
        };
        writeln!(
            out,
            "{BOLD}{files}: {clean} clean, {found} with findings, {not_scanned} not scanned to the end{BOLD:#}{others}"
        )?;
    }
    out.flush()?;
    Ok(outcome)
}

/// Scans all files below a folder.
fn folder(
    args: &cli::Scan,
    quiet: bool,
    path: &Path,
    out: &mut dyn Write,
    outcome: &mut Outcome,
) -> Result<()> {
    let (scanned, others) = (outcome.files(), outcome.others);
    let files = match files(path) {
        Ok(files) => files,
        Err(error) => {
            outcome.not_scanned = outcome.not_scanned.saturating_add(1);
            return Ok(not_scanned(args, path, &format!("{error:#}"), out)?);
        }
    };
    for file in files {
        one(args, quiet, &file, true, out, outcome)?;
    }
    if outcome.files() == scanned {
        outcome.empty = outcome.empty.saturating_add(1);
        let text = match outcome.others.saturating_sub(others) {
            0 => "the folder holds no file".to_owned(),
            others => {
                format!(
                    "the folder holds no checkpoint and no pickle, only {}",
                    counted(others, "other file")
                )
            }
        };
        not_scanned(args, path, &text, out)?;
    }
    Ok(())
}

/// Says why a file or folder was not scanned.
fn not_scanned(args: &cli::Scan, path: &Path, text: &str, out: &mut dyn Write) -> io::Result<()> {
    if args.json {
        let verdict = Verdict::NotScanned.name();
        let file = path.display().to_string();
        let object =
            json!({ "schema_version": SCHEMA_VERSION, "file": file, "verdict": verdict, "missed": [text] });
        writeln!(out, "{object}")
    } else {
        writeln!(out, "{BOLD}{}{BOLD:#}: not scanned: {}", safe(path.display()), safe(text))
    }
}

/// All files below a folder, sorted; links to folders are not followed.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = vec![folder.to_owned()];
    let mut files = Vec::new();
    while let Some(next) = folders.pop() {
        let entries = next.read_dir().with_context(|| next.display().to_string())?;
        for entry in entries {
            let entry = entry.with_context(|| next.display().to_string())?;
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if path.is_file() {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn one(
    args: &cli::Scan,
    quiet: bool,
    file: &Path,
    in_folder: bool,
    out: &mut dyn Write,
    outcome: &mut Outcome,
) -> Result<()> {
    let scan = match Scan::file(file, args.checksums) {
        Ok(scan) => scan,
        // A folder holds all sorts of files; one that is called as checkpoints are is looked at again.
        Err(torch_import::Error::Format { .. }) if in_folder && !is_called_checkpoint(file) => {
            outcome.others = outcome.others.saturating_add(1);
            return Ok(());
        }
        Err(error) => {
            outcome.not_scanned = outcome.not_scanned.saturating_add(1);
            return Ok(not_scanned(args, file, &error.to_string(), out)?);
        }
    };
    let verdict = Verdict::of(&scan, args.deny_unknown);
    let count = match verdict {
        Verdict::Clean => &mut outcome.clean,
        Verdict::Findings => &mut outcome.found,
        Verdict::NotScanned => &mut outcome.not_scanned,
    };
    *count = count.saturating_add(1);
    if args.json {
        writeln!(out, "{}", object(file, &scan, verdict))?;
    } else if !(quiet && verdict == Verdict::Clean) {
        print(args, file, &scan, verdict, out)?;
    }
    Ok(())
}

/// Whether a file's name says that it is a checkpoint.
fn is_called_checkpoint(file: &Path) -> bool {
    const EXTENSIONS: [&str; 8] = ["pth", "pt", "bin", "ckpt", "pkl", "pickle", "th", "torch"];
    let extension = file.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension.as_str()))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Clean,
    Findings,
    NotScanned,
}

impl Verdict {
    fn of(scan: &Scan, deny_unknown: bool) -> Self {
        let denied =
            |found: &Use| found.risk == Risk::Dangerous || (deny_unknown && found.risk == Risk::Unknown);
        if !scan.findings.is_empty() || scan.uses().any(|(_, found)| denied(found)) {
            Self::Findings
        } else if scan.is_whole() {
            Self::Clean
        } else {
            Self::NotScanned
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Findings => "findings",
            Self::NotScanned => "not scanned",
        }
    }
}

/// The globals of a risk, each once.
fn names(scan: &Scan, risk: Risk) -> BTreeSet<(&str, &str)> {
    let found = scan.uses().filter(|(_, found)| found.risk == risk);
    found.map(|(_, found)| (found.global.module.as_str(), found.global.name.as_str())).collect()
}

/// `clean`, unless something unknown was let pass.
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

fn print(
    args: &cli::Scan,
    file: &Path,
    scan: &Scan,
    verdict: Verdict,
    out: &mut dyn Write,
) -> io::Result<()> {
    let unknown_names = names(scan, Risk::Unknown);
    let (known, unknown) = (names(scan, Risk::Known).len(), unknown_names.len());
    let dangerous = names(scan, Risk::Dangerous).len();
    let pickles = format!("{}, {}", scan.format, counted(scan.count, "pickle"));
    let globals = match (dangerous, unknown) {
        (0, 0) => counted(known, "known global"),
        (0, _) => format!("{known} known and {}", counted(unknown, "unknown global")),
        _ => format!("{known} known, {unknown} unknown and {}", counted(dangerous, "dangerous global")),
    };
    let verdict = match verdict {
        Verdict::NotScanned => "not scanned to the end".to_owned(),
        Verdict::Clean => clean(&unknown_names),
        Verdict::Findings => verdict.name().to_owned(),
    };
    writeln!(out, "{BOLD}{}{BOLD:#}: {verdict} ({pickles}, {globals})", safe(file.display()))?;
    for risk in [Risk::Dangerous, Risk::Unknown, Risk::Known] {
        if risk == Risk::Known && !args.all {
            continue;
        }
        for (pickle, found) in scan.uses().filter(|(_, found)| found.risk == risk) {
            let at =
                if pickle.offset > 0 { format!(" from byte {} on", pickle.offset) } else { String::new() };
            let behind = if found.after_error { ", behind the error that ends it" } else { "" };
            let Use { global, calls, more, .. } = found;
            writeln!(
                out,
                "  {DIM}{:<10}{DIM:#} {} at 0x{:x} of {}{at}{behind}",
                risk.name(),
                safe(global),
                global.offset,
                safe(&pickle.place)
            )?;
            let all = risk == Risk::Dangerous || args.all || args.deny_unknown;
            // A call without arguments makes an empty instance; what it is given may be a command.
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
    for note in &scan.notes {
        writeln!(out, "  {DIM}{:<10}{DIM:#} {}", "note", safe(note))?;
    }
    Ok(())
}

fn object(file: &Path, scan: &Scan, verdict: Verdict) -> Json {
    let pickles: Vec<Json> = scan
        .pickles
        .iter()
        .map(|pickle| {
            let globals: Vec<Json> = pickle.uses.iter().map(global).collect();
            let mut way = pickle.place.0.iter().map(|step| match step {
                Step::Part(name) => json!(name),
                Step::Record(name) => json!(name),
                Step::Bytes(offset) => json!(offset),
            });
            json!({
                "record": way.next(),
                "within": way.collect::<Vec<Json>>(),
                "offset": pickle.offset,
                "error": pickle.error.as_ref().map(ToString::to_string),
                "globals": globals,
            })
        })
        .collect();
    let findings: Vec<Json> =
        scan.findings.iter().map(|finding| json!({ "kind": finding.kind, "text": finding.text })).collect();
    json!({
        "schema_version": SCHEMA_VERSION,
        "file": file.display().to_string(),
        "verdict": verdict.name(),
        "format": scan.format,
        "pickle_count": scan.count,
        "pickles": pickles,
        "irregularities": findings,
        "missed": scan.missed,
        "notes": scan.notes,
    })
}

fn global(found: &Use) -> Json {
    let calls: Vec<Json> = found
        .calls
        .iter()
        .map(|call| json!({ "opcode": call.opcode, "offset": call.offset, "text": call.text }))
        .collect();
    json!({
        "module": found.global.module,
        "name": found.global.name,
        "risk": found.risk.name(),
        "offset": found.global.offset,
        "calls": calls,
        "more_calls": found.more,
        "behind_error": found.after_error,
    })
}
