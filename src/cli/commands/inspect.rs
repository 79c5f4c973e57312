//! `torch2carton inspect`: lists the tensors of a checkpoint, or the contents of a carton.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use byte_source::{format_bytes, format_count, format_things};
use carton_format::Carton;
use inspect::{InspectReport, RowStatistics, TensorHash, TensorRow};
use open::{AdapterOverview, ValueRows};
use torch_import::{GraphArgument, GraphSignature, is_checkpoint_extension};

use super::convert_report::with_error_object;
use super::{inspect_tree, inspect_values};
use crate::cli::args::{FailOn, Inspect};
use crate::cli::ui::invocation::UsageError;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::table::{self, Align, truncate_cell};
use crate::cli::ui::terminal::{self, BOLD, DIM, escape_hidden};
use crate::cli::ui::value_text::value_text;
use crate::cli::ui::{advice, errors, stdin};

/// Extensions of inputs besides those of container formats: an argument with one of them is a file, even if there is no such file.
const EXTENSIONS: &[&str] = &["carton", "json", "tar", "zip"];

pub(crate) fn inspect(args: &Inspect, quiet: bool) -> Result<ExitCode> {
    let (files, names) = split_names(&args.files);
    match (files.as_slice(), names.as_slice()) {
        ([file], [_, ..]) => {
            let printed = inspect_values::print_named(args, file, &names, quiet);
            return printed.map_err(|error| with_error_object(error, file, args.json));
        }
        (_, [name, ..]) => {
            let text =
                format!("`{}` is not a file, and a name can follow one file only", escape_hidden(name));
            return Err(UsageError(text).into());
        }
        (_, []) if args.output.is_some() => {
            let text = "--output writes one tensor; name it after the file";
            return Err(UsageError(text.to_owned()).into());
        }
        (_, []) => {}
    }
    let several = files.len() > 1;
    let mut failed = 0_usize;
    let mut with_special = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let inspected = inspect_file(args, quiet, file, several.then_some(index));
        match inspected.map_err(|error| with_error_object(error, file, args.json)) {
            Err(error) if several && !terminal::is_broken_pipe(&error) => {
                errors::print_error(&error);
                failed += 1;
            }
            done => with_special.extend(done?),
        }
    }
    if failed > 0 {
        bail!("{failed} of {} cannot be read", files.len());
    }
    if let Some(first) = with_special.first() {
        match with_special.len() - 1 {
            0 => bail!("{first}"),
            more => bail!("{first}; {} more", format_things(more, "tensor")),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Splits the arguments into files and the names of tensors or values. The first one is a file.
fn split_names(args: &[PathBuf]) -> (Vec<&PathBuf>, Vec<String>) {
    let (mut files, mut names) = (Vec::new(), Vec::new());
    for (index, arg) in args.iter().enumerate() {
        let extension = arg.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let is_file = index == 0
            || arg.as_path() == Path::new("-")
            || arg.exists()
            || EXTENSIONS.contains(&extension)
            || is_checkpoint_extension(extension);
        match arg.to_str() {
            Some(name) if !is_file => names.push(name.to_owned()),
            _ => files.push(arg),
        }
    }
    (files, names)
}

/// Inspects a file; `index` is its position among several ones. Returns a text for each tensor with numbers on which the
/// command fails.
fn inspect_file(args: &Inspect, quiet: bool, file: &Path, index: Option<usize>) -> Result<Vec<String>> {
    let input = args.remote.locate_or_stdin(file)?;
    let file = input.path();
    let progress = Progress::new(quiet || !args.options.statistics && args.fail_on.is_empty());
    if !args.asks_for_rows()
        && let Some(carton) = Carton::find(&input).map_err(open::in_carton(file))?
    {
        let advise = index.is_none() && input.is_local();
        super::inspect_carton::inspect((file, &carton), args, quiet, advise)?;
        return Ok(Vec::new());
    }
    let mut report = inspect::inspect(&args.options(input.clone()), &progress)?;
    progress.clear();
    stdin::restore_typed_path(&mut report.file);
    if args.json {
        let mut out = io::BufWriter::new(io::stdout().lock());
        super::write_report_line(&mut out, &report, &args.remote)?;
        out.flush()?;
    } else {
        let mut out = io::BufWriter::new(anstream::stdout().lock());
        if let Some(index) = index {
            let gap = if index == 0 { "" } else { "\n" };
            writeln!(out, "{gap}{BOLD}{}{BOLD:#}", escape_hidden(&report.file))?;
        }
        print_inspection(&mut out, &report, args, quiet)?;
        out.flush()?;
    }
    let with_special = tensors_to_fail_on(&report, &args.fail_on);
    if index.is_none() {
        // The process is about to end, and freeing a million objects one by one takes a tenth of its time.
        std::mem::forget(report);
    }
    Ok(with_special)
}

/// Returns a text for each tensor that has numbers on which the command fails.
fn tensors_to_fail_on(report: &InspectReport, fail_on: &[FailOn]) -> Vec<String> {
    let text = |row: &TensorRow| {
        let statistics = row.statistics.known()?;
        let mut found = Vec::new();
        if fail_on.contains(&FailOn::Nan) && statistics.nan > 0 {
            found.push(format!("{} NaN", statistics.nan));
        }
        if fail_on.contains(&FailOn::Inf) && statistics.infinite > 0 {
            found.push(format!("{} infinite numbers", statistics.infinite));
        }
        let name = truncate_cell(&escape_hidden(&row.name));
        (!found.is_empty())
            .then(|| format!("{}: tensor `{name}` has {}", escape_hidden(&report.file), found.join(" and ")))
    };
    report.tensors.iter().filter_map(text).collect()
}

fn print_inspection(
    out: &mut dyn Write,
    report: &InspectReport,
    args: &Inspect,
    quiet: bool,
) -> io::Result<()> {
    let is_measured = report.tensors.iter().any(|row| !matches!(row.statistics, RowStatistics::NotRequested));
    if let Some(tree) = &report.tree {
        inspect_tree::print_tree(out, tree)?;
        if is_measured {
            writeln!(out)?;
            inspect_tree::print_statistics(out, &report.tensors)?;
        }
    } else if args.values_only {
        // Only the values are listed.
    } else if is_measured {
        inspect_tree::print_statistics(out, &report.tensors)?;
    } else {
        print_tensors(out, &report.tensors)?;
    }
    for (index, value) in report.values.iter().flat_map(ValueRows::rows).enumerate() {
        let gap = if index == 0 && !args.values_only { "\n" } else { "" };
        let (path, type_name) = (escape_hidden(&value.path), escape_hidden(&value.type_name));
        writeln!(out, "{gap}{path}  {DIM}{type_name}{DIM:#}  {}", escape_hidden(value_text(&value.value)))?;
    }
    if quiet || args.values_only {
        return Ok(());
    }
    print_totals(out, report)?;
    report.adapter.as_ref().map_or(Ok(()), |adapter| print_adapter(out, adapter))
}

fn print_adapter(out: &mut dyn Write, adapter: &AdapterOverview) -> io::Result<()> {
    let mut parts = vec![adapter.method.clone().unwrap_or_else(|| "unknown method".to_owned())];
    parts.extend(adapter.rank.map(|rank| format!("rank {rank}")));
    parts.extend(adapter.alpha.map(|alpha| format!("alpha {alpha}")));
    parts.extend(adapter.base.as_ref().map(|base| format!("base {base}")));
    if !adapter.targets.is_empty() {
        parts.push(format!("targets {}", adapter.targets.join(", ")));
    }
    writeln!(out, "adapter: {}", escape_hidden(parts.join("; ")))
}

fn print_tensors(out: &mut dyn Write, rows: &[TensorRow]) -> io::Result<()> {
    if rows.is_empty() {
        return writeln!(out, "no tensors");
    }
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
                _ if row.quantization.is_some() => row
                    .quantization
                    .as_deref()
                    .map_or_else(String::new, |it| format!("{}; {:.2} bits a weight", it.scheme, it.bits)),
                (Some(layout), ..) => layout.to_string(),
                (_, Some(note), _) if row.storage.is_none() => note.to_string(),
                (_, Some(note), Some(first)) => format!("shared with {first}, {note}"),
                (.., Some(first)) => format!("shared with {first}"),
                (.., None) => String::new(),
            };
            let shape: Vec<String> = row.shape().iter().map(u64::to_string).collect();
            let shape = format!("[{}]", shape.join(", "));
            [row.name.clone(), row.dtype.to_owned(), shape, format_bytes(row.stored_nbytes()), shared]
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
    let is_all = report.tensors.is_empty() && report.values.is_none() && report.value_count > 0;
    let values = match report.value_count {
        1 if is_all => "1 (--all lists it)".to_owned(),
        count if is_all => format!("{count} (--all lists them)"),
        count => count.to_string(),
    };
    writeln!(out)?;
    for (label, value) in [
        ("container", format!("{}{files}, {}", report.format, format_bytes(report.nbytes))),
        ("tensors", report.tensors.len().to_string()),
        ("parameters", format_count(report.totals.parameters)),
        ("bytes", dtypes.collect::<Vec<_>>().join(", ")),
        ("values", values),
        ("globals", globals_text(report)),
    ] {
        if !value.is_empty() {
            writeln!(out, "{DIM}{label:<12}{DIM:#}{value}")?;
        }
    }
    for program in &report.programs {
        writeln!(out, "{DIM}{:<12}{DIM:#}{}", "program", escape_hidden(program_text(program)))?;
    }
    for note in &report.notes {
        writeln!(
            out,
            "{DIM}{:<12}{DIM:#}{}",
            "note",
            escape_hidden(advice::open_note_text(note, &report.file))
        )?;
    }
    Ok(())
}

/// Returns the arguments and results of a program, and how many tensors it has.
fn program_text(program: &GraphSignature) -> String {
    let of_kind = |arguments: &'_ [GraphArgument], kind: &'_ str| -> Vec<String> {
        let text = |argument: &GraphArgument| {
            let shape = argument.shape.as_ref().map(|shape| format!(" [{}]", shape.join(", ")));
            let dtype = argument.dtype.map(|dtype| format!(" {dtype}"));
            [Some(argument.name.clone()), dtype, shape].into_iter().flatten().collect()
        };
        arguments.iter().filter(|argument| argument.kind == kind).map(text).collect()
    };
    let inputs = of_kind(&program.inputs, "user_input").join(", ");
    let outputs = of_kind(&program.outputs, "user_output").join(", ");
    let counts = [("parameter", "parameter"), ("buffer", "buffer"), ("tensor_constant", "constant")];
    let counts = counts.map(|(kind, thing)| format_things(of_kind(&program.inputs, kind).len(), thing));
    let version = program.torch_version.as_deref().map_or_else(String::new, |it| format!("; PyTorch {it}"));
    format!("{}: inputs {inputs}; outputs {outputs}; {}{version}", program.model, counts.join(", "))
}

/// Counts the known globals, and lists the names of all others by risk.
fn globals_text(report: &InspectReport) -> String {
    let names = |risk: &str| -> Vec<String> {
        let names = report.risks.iter().filter(|(_, found)| found.as_str() == Some(risk));
        names.map(|(name, _)| escape_hidden(name)).collect()
    };
    let mut parts = vec![format!("{} known", names("known").len())];
    for risk in ["unknown", "unreviewed", "dangerous"] {
        let names = names(risk);
        if names.is_empty() {
            parts.extend((risk == "unknown").then(|| "0 unknown".to_owned()));
        } else {
            parts.push(format!("{} {risk}: {}", names.len(), names.join(", ")));
        }
    }
    parts.join(", ")
}
