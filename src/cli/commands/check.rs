//! `torch2carton check`: reports whether every tensor of a model is there.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use byte_source::{FileError, format_things};
use inspect::CheckReport;
use serde_json::Map;

use super::sarif::{SarifLog, SarifRule};
use crate::cli::args::Check;
use crate::cli::ui::errors;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::terminal::{self, BOLD, escape_hidden};

/// Findings of a kind that are listed.
const LISTED_MAX: usize = 20;

/// Rule of the SARIF document for an input that is not whole.
const RULE: SarifRule<'_> = SarifRule {
    id: "incomplete-model",
    level: "error",
    severity: "6.0",
    name: "Model that is not whole",
    description: "The tensors are not those that the configuration asks for, so that a program may start with random weights.",
};

pub(crate) fn check(args: &Check, quiet: bool) -> Result<ExitCode> {
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    let mut sarif = SarifLog::default();
    let (mut incomplete, mut unread) = (0_usize, 0_usize);
    for file in &args.files {
        let progress = Progress::new(quiet || args.json || args.sarif);
        let checked = args.remote.locate(file).and_then(|input| {
            let mut report = inspect::check(&args.options(input), &progress)?;
            report.file = file.display().to_string();
            Ok(report)
        });
        progress.clear();
        let report = match checked {
            Ok(report) => report,
            Err(error) if !terminal::is_broken_pipe(&error) => {
                out.flush()?;
                errors::print_error(&error);
                unread += 1;
                continue;
            }
            Err(error) => return Err(error),
        };
        incomplete += usize::from(!report.whole);
        if args.sarif {
            for (kind, lines) in findings(&report) {
                for line in lines {
                    sarif.push(file, (0, &RULE), &format!("{kind}: {line}"), Map::new());
                }
            }
        } else if args.json {
            super::write_report_line(&mut out, &report, &args.remote)?;
        } else if !(quiet && report.whole) {
            print(&report, file, args.all, &mut out)
                .map_err(|reason| FileError::Output { what: "the listing", reason })?;
        }
    }
    let status = match (incomplete, unread) {
        (0, 0) => 0,
        (0, _) => 2,
        _ => 1,
    };
    if args.sarif {
        super::write_json_line(&mut out, &sarif.into_log(&[RULE], status))?;
    }
    out.flush()?;
    Ok(ExitCode::from(status))
}

/// Returns the findings of each kind as lines.
fn findings(report: &CheckReport) -> Vec<(&'static str, Vec<String>)> {
    let mut kinds = vec![
        ("declared but absent", report.absent.iter().map(|part| (*part).to_owned()).collect()),
        ("missing", report.groups.iter().map(ToString::to_string).collect()),
        ("unexpected", report.unexpected.clone()),
        ("misshaped", report.misshaped.iter().map(ToString::to_string).collect()),
        (
            "twice",
            report
                .twice
                .iter()
                .map(|row| match row.files.len() {
                    1 => format!("{} is in another layout", row.name),
                    _ => format!("{} is in {}", row.name, row.files.join(" and ")),
                })
                .collect(),
        ),
        (
            "not in the index",
            report
                .unindexed
                .iter()
                .map(|row| format!("{} with {}", row.file, format_things(row.tensors.len(), "tensor")))
                .collect(),
        ),
        ("stale in the index", report.stale.clone()),
    ];
    kinds.retain(|(_, lines): &(_, Vec<String>)| !lines.is_empty());
    kinds
}

fn print(report: &CheckReport, file: &Path, all: bool, out: &mut dyn Write) -> io::Result<()> {
    let name = escape_hidden(file.display());
    let class = if report.class.is_empty() { &report.model_type } else { &report.class };
    let layout = match report.layout {
        "modules" => "names in memory",
        "gguf" => "GGUF",
        _ => "released names",
    };
    let tensors = format_things(report.tensors, "tensor");
    if report.whole {
        return writeln!(out, "{BOLD}{name}: whole{BOLD:#} ({tensors}, {}, {layout})", escape_hidden(class));
    }
    let missing = match report.missing.len() {
        0 => "not as its configuration says".to_owned(),
        missing => format!("{} of {} missing", missing, format_things(report.expected, "tensor")),
    };
    writeln!(out, "{BOLD}{name}: {missing}{BOLD:#} ({tensors}, {}, {layout})", escape_hidden(class))?;
    for (kind, lines) in findings(report) {
        let shown = if all { lines.len() } else { LISTED_MAX };
        for line in lines.iter().take(shown) {
            writeln!(out, "  {kind}: {}", escape_hidden(line))?;
        }
        if lines.len() > shown {
            writeln!(out, "  {kind}: {} more, which --all lists", lines.len().saturating_sub(shown))?;
        }
    }
    if let Some(prefix) = report.prefix {
        writeln!(
            out,
            "  all names begin with `{prefix}`, which convert's --strip-prefix {prefix} takes away"
        )?;
    }
    Ok(())
}
