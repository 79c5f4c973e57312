//! `torch2carton inspect`: lists the tensors of a checkpoint, or the contents of a carton.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use pipeline::{InspectOptions, InspectReport, TensorHash, TensorRow, ValueRows, format_bytes, format_count};

use crate::cli::args::Inspect;
use crate::cli::ui::invocation::UsageError;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::table::{self, Align, truncate_cell};
use crate::cli::ui::terminal::{self, BOLD, DIM, escape_hidden};
use crate::cli::ui::{advice, errors};

pub(crate) fn inspect(args: &Inspect, quiet: bool) -> Result<ExitCode> {
    let several = args.files.len() > 1;
    let mut failed = 0_usize;
    for (index, file) in args.files.iter().enumerate() {
        match inspect_file(args, quiet, file, index) {
            Err(error) if several && !terminal::is_broken_pipe(&error) => {
                errors::print_error(&error);
                failed += 1;
            }
            done => done?,
        }
    }
    if failed > 0 {
        bail!("{failed} of {} cannot be read", args.files.len());
    }
    Ok(ExitCode::SUCCESS)
}

fn inspect_file(args: &Inspect, quiet: bool, file: &Path, index: usize) -> Result<()> {
    output::refuse_remote(file)?;
    if carton_tools::is_carton(file) {
        if args.sha256 || args.all {
            let text =
                "--sha256 and --all are about checkpoints; `torch2carton verify` compares a carton's hashes";
            return Err(UsageError(text.to_owned()).into());
        }
        return super::inspect_carton::inspect(file, args.json, quiet);
    }
    let mut options = InspectOptions::new(file);
    options.sha256 = args.sha256;
    options.values = args.all;
    let report = pipeline::inspect(&options, &Progress::new(true))?;
    let several = args.files.len() > 1;
    if args.json {
        let mut out = io::BufWriter::new(io::stdout().lock());
        super::write_json_line(&mut out, &report)?;
        out.flush()?;
    } else {
        let mut out = io::BufWriter::new(anstream::stdout().lock());
        if several {
            let gap = if index == 0 { "" } else { "\n" };
            writeln!(out, "{gap}{BOLD}{}{BOLD:#}", escape_hidden(&report.file))?;
        }
        print_inspection(&mut out, &report, quiet)?;
        out.flush()?;
    }
    if !several {
        // The process is about to end, and freeing a million objects one by one takes a tenth of its time.
        std::mem::forget(report);
    }
    Ok(())
}

fn print_inspection(out: &mut dyn Write, report: &InspectReport, quiet: bool) -> io::Result<()> {
    print_tensors(out, &report.tensors)?;
    for (index, value) in report.values.iter().flat_map(ValueRows::rows).enumerate() {
        let gap = if index == 0 { "\n" } else { "" };
        let (path, type_name) = (escape_hidden(&value.path), escape_hidden(&value.type_name));
        writeln!(out, "{gap}{path}  {DIM}{type_name}{DIM:#}  {}", escape_hidden(value.value.to_string()))?;
    }
    if quiet {
        return Ok(());
    }
    print_totals(out, report)
}

fn print_tensors(out: &mut dyn Write, rows: &[TensorRow]) -> io::Result<()> {
    let mut first_of: HashMap<usize, &str> = HashMap::new();
    let cells: Vec<[String; 5]> = rows
        .iter()
        .map(|row| {
            let first = row.storage.and_then(|storage| {
                let first = first_of.get(&storage).copied();
                first_of.entry(storage).or_insert(&row.name);
                first
            });
            let shared = match (&row.layout, &row.note, first) {
                (Some(layout), ..) => layout.clone(),
                (_, Some(note), _) if row.storage.is_none() => note.clone(),
                (.., Some(first)) => format!("shared with {first}"),
                (.., None) => String::new(),
            };
            let shape: Vec<String> = row.shape().iter().map(u64::to_string).collect();
            let shape = format!("[{}]", shape.join(", "));
            [row.name.clone(), row.dtype.to_owned(), shape, format_bytes(row.nbytes), shared]
        })
        .collect();
    let is_shared = cells.iter().any(|[.., shared]| !shared.is_empty());
    let head = ["name", "dtype", "shape", "size", if is_shared { "storage" } else { "" }];
    let align = [Align::Left, Align::Left, Align::Left, Align::Right, Align::Left];
    table::print_table(out, align, head, cells.into_iter())?;
    for (index, row) in rows.iter().enumerate() {
        let text = match (&row.sha256, &row.note) {
            (TensorHash::Hex(hash), _) => hash,
            (TensorHash::TooLarge, Some(note)) => note,
            (TensorHash::TooLarge, None) => "-",
            (TensorHash::NotRequested, _) => break,
        };
        let gap = if index == 0 { "\n" } else { "" };
        writeln!(out, "{gap}{}  {}", escape_hidden(text), truncate_cell(&escape_hidden(&row.name)))?;
    }
    Ok(())
}

fn print_totals(out: &mut dyn Write, report: &InspectReport) -> io::Result<()> {
    let dtypes =
        report.totals.bytes_by_dtype.iter().map(|(dtype, n)| format!("{dtype} {}", format_bytes(*n)));
    let files =
        if report.files.is_empty() { String::new() } else { format!(", {} files", report.files.len()) };
    writeln!(out)?;
    for (label, value) in [
        ("container", format!("{}{files}, {}", report.format, format_bytes(report.nbytes))),
        ("tensors", report.tensors.len().to_string()),
        ("parameters", format_count(report.totals.parameters)),
        ("bytes", dtypes.collect::<Vec<_>>().join(", ")),
        ("values", report.value_count.to_string()),
        ("globals", globals_text(report)),
    ] {
        writeln!(out, "{DIM}{label:<12}{DIM:#}{value}")?;
    }
    for note in &report.notes {
        writeln!(out, "{DIM}{:<12}{DIM:#}{}", "note", escape_hidden(advice::note_text(note, &report.file)))?;
    }
    Ok(())
}

/// Counts the known globals, and lists the names of unknown and dangerous globals.
fn globals_text(report: &InspectReport) -> String {
    let names = |risk: &str| -> Vec<String> {
        let names = report.risks.iter().filter(|(_, found)| found.as_str() == Some(risk));
        names.map(|(name, _)| escape_hidden(name)).collect()
    };
    let mut parts = vec![format!("{} known", names("known").len())];
    for risk in ["unknown", "dangerous"] {
        let names = names(risk);
        if names.is_empty() {
            parts.extend((risk == "unknown").then(|| "0 unknown".to_owned()));
        } else {
            parts.push(format!("{} {risk}: {}", names.len(), names.join(", ")));
        }
    }
    parts.join(", ")
}
