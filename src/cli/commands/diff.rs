//! `torch2carton diff`: what differs between two checkpoints or cartons.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use byte_source::{format_count, format_things};
use inspect::{
    Change, DiffCounts, DiffReport, ElementChange, FirstChange, TensorChange, TensorSummary, ValueDifference,
};

use super::report::PageTarget;
use crate::cli::args::Diff;
use crate::cli::ui::invocation::UsageError;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::table::{self, Align, truncate_cell};
use crate::cli::ui::terminal::{self, BOLD, DIM, escape_hidden};
use crate::cli::ui::{advice, stdin};

pub(crate) fn diff(args: &Diff, quiet: bool) -> Result<ExitCode> {
    let inputs = [stdin::input_path(&args.a)?, stdin::input_path(&args.b)?];
    let page = args.html.clone().map(|path| PageTarget { path, if_exists: args.if_exists });
    if let Some(page) = &page {
        if page.is_stdout() && args.json {
            return Err(UsageError(
                "--json and --html - both write to standard output: give --html a path".to_owned(),
            )
            .into());
        }
        page.check(&inputs)?;
    }
    let mut options = args.options.clone();
    (options.a, options.b) = (args.remote.locate_or_stdin(&args.a)?, args.remote.locate_or_stdin(&args.b)?);
    let progress = Progress::new(quiet || args.json);
    let mut report = inspect::diff(&options, &progress)?;
    stdin::restore_typed_path(&mut report.a.file);
    stdin::restore_typed_path(&mut report.b.file);
    progress.clear();
    let status = ExitCode::from(u8::from(!report.same));
    if let Some(target) = page {
        let mut page = Vec::new();
        inspect::page::write_diff_page(&report, &mut page)?;
        target.write(&page, quiet || args.json)?;
        if target.is_stdout() {
            return Ok(status);
        }
    }
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    if args.json {
        super::write_report_line(&mut out, &report, &args.remote)?;
    } else {
        if !quiet {
            report.notes.iter().for_each(|note| {
                terminal::note(advice::open_note_text(note, &report.a.file));
            });
            if report.tensors.is_empty() && !report.values.is_empty() {
                terminal::note(
                    "only values that are not tensors differ; --no-values compares the tensors alone",
                );
            }
            print_summary(&mut out, &report)?;
        }
        print_tensors(&mut out, &report)?;
        print_values(&mut out, &report.values)?;
        if report.unlisted > 0 && !quiet {
            writeln!(
                out,
                "{DIM}{} not listed (--limit){DIM:#}",
                format_things(report.unlisted, "difference")
            )?;
        }
    }
    out.flush()?;
    Ok(status)
}

fn print_summary(out: &mut dyn Write, report: &DiffReport) -> io::Result<()> {
    let DiffCounts { same, within_tolerance, values, values_cut, .. } = report.counts;
    let rows = [
        (report.counts.changed, "changed"),
        (report.counts.shape, "with another shape"),
        (report.counts.structure, "with another structure"),
        (report.counts.permuted, "permuted"),
        (report.counts.transposed, "transposed"),
        (report.counts.reshaped, "reshaped"),
        (report.counts.dtype, "with another dtype"),
        (report.counts.renamed, "renamed"),
        (report.counts.only_in_a, "only in A"),
        (report.counts.only_in_b, "only in B"),
        (within_tolerance, "within the tolerance"),
    ];
    let rows = rows.iter().filter(|(count, _)| *count > 0);
    let rows: Vec<String> =
        rows.map(|(count, what)| format!(", {} {what}", format_count(*count as u64))).collect();
    let rows = rows.concat();
    let values = match (values, values_cut) {
        (0, 0) => String::new(),
        (0, cut) => format!("; {} too large to be compared as a whole", format_things(cut, "value")),
        (1, 0) => "; 1 value differs".to_owned(),
        (values, 0) => format!("; {} differ", format_things(values, "value")),
        (values, cut) => {
            format!(
                "; {} differ, {cut} are too large to be compared as a whole",
                format_things(values, "value")
            )
        }
    };
    let (a, b) = (escape_hidden(&report.a.file), escape_hidden(&report.b.file));
    let same = format_things(same, "tensor");
    writeln!(out, "{BOLD}{a}{BOLD:#} and {BOLD}{b}{BOLD:#}: {same} the same{rows}{values}")
}

fn print_tensors(out: &mut dyn Write, report: &DiffReport) -> io::Result<()> {
    if report.tensors.is_empty() {
        return Ok(());
    }
    let rows = report.tensors.iter().map(|row| {
        let changes: Vec<&str> = row.changes.iter().map(|change| change_text(*change)).collect();
        [changes.join(", "), names_text(row), types_text(row), details_text(row)]
    });
    table::print_table(out, [Align::Left; 4], ["change", "tensor", "dtype and shape", "details"], rows)
}

fn change_text(change: Change) -> &'static str {
    match change {
        Change::OnlyInA => "only in A",
        Change::OnlyInB => "only in B",
        change => change.name(),
    }
}

/// Joins what A and B have, or says it once if it is the same.
fn both(row: &TensorChange, text: impl Fn(&TensorSummary) -> String) -> String {
    match (row.a.as_ref().map(&text), row.b.as_ref().map(&text)) {
        (Some(a), Some(b)) if a == b => a,
        (Some(a), Some(b)) => format!("{a} -> {b}"),
        (a, b) => a.or(b).unwrap_or_default(),
    }
}

fn names_text(row: &TensorChange) -> String {
    both(row, |tensor| tensor.name.clone())
}

fn types_text(row: &TensorChange) -> String {
    both(row, |tensor| {
        let shape: Vec<String> = tensor.shape.iter().map(u64::to_string).collect();
        let kind = tensor.kind.as_ref().map_or_else(String::new, |kind| format!(" {kind}"));
        format!("{} [{}]{kind}", tensor.dtype, shape.join(", "))
    })
}

fn details_text(row: &TensorChange) -> String {
    let order = row.rearrangement.as_ref().map(ToString::to_string);
    let elements = row.elements.as_ref().map(elements_text);
    order.into_iter().chain(elements).collect::<Vec<_>>().join("; ")
}

fn elements_text(change: &ElementChange) -> String {
    let ElementChange { count, numel, not_finite, max_abs, max_rel, mean_abs, norm, relative_norm, .. } =
        change;
    if *count == 0 {
        return "equal values".to_owned();
    }
    let mut parts = vec![format!("{} of {} elements", format_count(*count), format_count(*numel))];
    if *max_abs > 0.0 {
        parts.push(format!("max {}, max relative {}", short(*max_abs), percent(*max_rel)));
        parts.push(format!("mean {}", short(*mean_abs)));
        parts.push(format!("norm {} ({})", short(*norm), percent(*relative_norm)));
        parts.extend(change.cosine.map(|cosine| format!("cosine {cosine:.6}")));
    }
    if *not_finite > 0 {
        parts.push(format!("{} NaN or infinite", format_count(*not_finite)));
    }
    if let Some(FirstChange { index, a, b, .. }) = &change.first {
        parts.push(format!("first at {index:?}: {a} -> {b}"));
    }
    parts.join(", ")
}

fn percent(part: f64) -> String {
    format!("{} %", short(part * 100.0))
}

/// Formats a number with four digits.
fn short(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return number.to_string();
    }
    if !(1e-3..1e6).contains(&number.abs()) {
        return format!("{number:.3e}");
    }
    let text = format!("{number:.*}", if number >= 100.0 { 1 } else { 4 });
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn print_values(out: &mut dyn Write, values: &[ValueDifference]) -> io::Result<()> {
    for ValueDifference { path, change, a, b, .. } in values {
        let texts =
            [a, b].into_iter().flatten().map(|value| truncate_cell(&escape_hidden(value.to_string())));
        let texts = texts.collect::<Vec<_>>().join(" -> ");
        writeln!(out, "{DIM}value{DIM:#}  {}  {}  {texts}", change_text(*change), escape_hidden(path))?;
    }
    Ok(())
}
