//! Prints the report of a conversion, or its error with advice.

use std::io::{self, Write};
use std::path::Path;

use anyhow::anyhow;
use byte_source::{Detail, ErrorKind, format_bytes, format_count, format_things};
use convert::{
    ArchitectureChoice, CartonReport, ConvertReport, Error, HyperparameterKind, ModelOptions, OutputFormat,
    Problem, TensorListing,
};
use serde_json::{Value, json};

use super::merge_summary;
use crate::cli::args::Convert;
use crate::cli::ui::invocation::typed_command;
use crate::cli::ui::shell::shell_quoted_path;
use crate::cli::ui::table::{self, Align, truncate_cell};
use crate::cli::ui::terminal::{self, BOLD, DIM, escape_hidden};
use crate::cli::ui::{advice, errors, flags};

/// Returns the object for an input that was not converted: its path, the text of the error, and the kind of the error.
pub(super) fn error_object(file: &str, code: &str, error: &anyhow::Error) -> Value {
    let text = errors::error_chain_text(error);
    json!({ "schema_version": 1, "file": file, "error": text, "code": code })
}

/// Prints the object for an input that cannot be read, if `json` objects are printed, and returns the error.
pub(super) fn with_error_object(error: anyhow::Error, file: &Path, json: bool) -> anyhow::Error {
    if !json || terminal::is_broken_pipe(&error) {
        return error;
    }
    let kind =
        match (error.downcast_ref::<byte_source::Error>(), error.downcast_ref::<remote_source::Error>()) {
            (Some(error), _) => error.kind(),
            (_, Some(error)) => error.kind(),
            _ => ErrorKind::Input,
        };
    let object = error_object(&output::shown_path(file).display().to_string(), kind.name(), &error);
    super::write_json_line(&mut io::stdout().lock(), &object).err().map_or(error, Into::into)
}

const KNOWN_VALUES_HINT: &str = " (Llama 1 and 2: 10000 and 1e-5 or 1e-6; Llama 3: 500000 and 1e-5)";

/// Returns the error, with a command that repeats the typed arguments and has placeholders for missing hyperparameters.
pub(super) fn with_advice(error: Error, args: &Convert) -> anyhow::Error {
    let missing = match error.detail() {
        Some(Problem::Model { root, reason }) => match reason.detail() {
            Some(decoder::Problem::MissingHyperparameters { facts, .. }) => Some((root, facts)),
            _ => None,
        },
        _ => None,
    };
    let Some((root, facts)) = missing else { return error.into() };
    let known = if *facts == [HyperparameterKind::Heads] { "" } else { KNOWN_VALUES_HINT };
    let command =
        format!("{} {}{}", typed_command(), shell_quoted_path(root), hyperparameter_flags(args, facts));
    let weights = if args.options.target.output().needs_forward() {
        String::new()
    } else {
        format!("; {}", advice::WEIGHTS_ADVICE)
    };
    anyhow!("{error}; run `{command}`{known}{weights}")
}

/// Returns the flags that were used, and the flags for the missing `facts` with words instead of numbers: a guess that fits
/// the shapes would make a wrong model.
fn hyperparameter_flags(args: &Convert, facts: &[HyperparameterKind]) -> String {
    let options = &args.options;
    let default = ModelOptions::default();
    let model = options.target.output().module_options().map_or(&default, |module| module.model);
    let arch = match &model.architecture {
        ArchitectureChoice::Named(name) => format!(" --arch {name}"),
        ArchitectureChoice::Auto | ArchitectureChoice::Weights => String::new(),
    };
    let word = |fact| match fact {
        HyperparameterKind::Heads => "N",
        HyperparameterKind::RopeTheta => "BASE",
        HyperparameterKind::RopeFactor => "FACTOR",
        HyperparameterKind::NormEps => "EPS",
    };
    let numbers = options.overrides.numbers().into_iter().filter_map(|(fact, number)| {
        let missing = || facts.contains(&fact).then(|| word(fact).to_owned());
        Some(format!(" {} {}", flags::hyperparameter_flag(fact), number.or_else(missing)?))
    });
    let keep = if model.keep_extra { " --keep-extra" } else { "" };
    let format = options.target.format();
    let is_chosen = options.output.as_deref().and_then(OutputFormat::from_path).unwrap_or_default() == format;
    let to = if is_chosen { String::new() } else { format!(" --to {format}") };
    let output =
        options.output.as_deref().map_or_else(String::new, |path| format!(" -o {}", shell_quoted_path(path)));
    format!("{arch}{}{keep}{to}{output}", numbers.collect::<String>())
}

pub(super) fn print_report(report: &ConvertReport, quiet: bool, is_of_several: bool) -> io::Result<()> {
    if quiet {
        return Ok(());
    }
    print_listing(&report.listing)?;
    let of = if is_of_several { format!("{}: ", report.file) } else { String::new() };
    let texts = report.notes.iter().map(|note| advice::note_text(note, &report.file));
    texts.for_each(|text| terminal::note(format!("{of}{text}")));
    print_summary(report);
    Ok(())
}

/// Prints the tensors that a dry run would write, with their names in the checkpoint if one has another name.
fn print_listing(listing: &[TensorListing]) -> io::Result<()> {
    if listing.is_empty() {
        return Ok(());
    }
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    let is_renamed = listing.iter().any(|row| row.from.as_ref() != Some(&row.name));
    let cells = listing.iter().map(|row| {
        let shape: Vec<String> = row.shape.iter().map(u64::to_string).collect();
        let from =
            if is_renamed { row.from.clone().unwrap_or_else(|| "-".to_owned()) } else { row.name.clone() };
        let name = if is_renamed { row.name.clone() } else { String::new() };
        [from, row.dtype.clone(), format!("[{}]", shape.join(", ")), name]
    });
    let head = ["name", "dtype", "shape", if is_renamed { "name in the output" } else { "" }];
    table::print_table(&mut out, [Align::Left; 4], head, cells)?;
    writeln!(out)?;
    out.flush()
}

/// Smallest output whose speed says something, in bytes.
const SPEED_BYTES_MIN: u64 = 100_000_000;

/// Prints the output, its size, and the speed of the conversion.
fn print_summary(report: &ConvertReport) {
    let seconds = report.seconds;
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let speed = report.nbytes as f64 / 1e9 / seconds.max(1e-9);
    let parameters = report.totals.parameters;
    let parameters = if parameters == 1 {
        "1 parameter".to_owned()
    } else {
        format!("{} parameters", format_count(parameters))
    };
    let size = if report.written && report.nbytes >= SPEED_BYTES_MIN {
        format!("{} in {seconds:.2} s, {speed:.2} GB/s", format_bytes(report.nbytes))
    } else if report.written {
        format!("{} in {seconds:.2} s", format_bytes(report.nbytes))
    } else {
        format!("{}; nothing was written (--dry-run)", format_bytes(report.nbytes))
    };
    let holds = format!("{}, {parameters}", format_count(report.tensors as u64));
    let mut fields = vec![("module", report.format_report.module()), ("tensors", Some(holds))];
    fields.extend(step_fields(report));
    fields.push(("size", Some(size)));
    let lacks_tokenizer = report.carton().is_some_and(CartonReport::lacks_tokenizer);
    fields.extend(report.format_report.summary().into_iter().map(|(label, value)| {
        let advice = if lacks_tokenizer && label == "misc" { " (add one with --misc FILE)" } else { "" };
        (label, Some(value + advice))
    }));
    fields.push(("next", next_command(report)));
    fields.push(("digest", report.digest.clone()));
    fields.push(("statement", report.statement.clone()));
    terminal::summary(format_args!("{BOLD}{}{BOLD:#}", escape_hidden(&report.output)));
    let fields: Vec<_> = fields.into_iter().filter_map(|(label, value)| Some((label, value?))).collect();
    let width = fields.iter().map(|(label, _)| label.len().saturating_add(1)).fold(10, usize::max);
    for (label, value) in fields {
        let value = truncate_cell(&escape_hidden(value));
        terminal::summary(format_args!("  {DIM}{label:<width$}{DIM:#}{value}"));
    }
    for line in report.sum.iter().flat_map(merge_summary::sum_lines) {
        terminal::summary(format_args!("  {DIM}{:<width$}{DIM:#}{}", line.0, escape_hidden(line.1)));
    }
    for adapter in &report.adapters {
        for (number, line) in merge_summary::adapter_lines(adapter).into_iter().enumerate() {
            let label = if number == 0 { "merged" } else { "" };
            terminal::summary(format_args!("  {DIM}{label:<width$}{DIM:#}{}", escape_hidden(line)));
        }
    }
}

/// Returns the command that talks with a chat model; `None` for other outputs.
#[cfg(feature = "tokenizer")]
fn next_command(report: &ConvertReport) -> Option<String> {
    let path = Path::new(&report.output);
    let reads_texts = |carton: &CartonReport| carton.is_decoder() && carton.has_tokenizer;
    let is_unread = report.notes.iter().any(|note| matches!(note, convert::Note::TokenizerUnread { .. }));
    let reads_texts = report.written && !is_unread && report.carton().is_some_and(reads_texts);
    let is_chat = reads_texts && super::chat::has_template(path);
    is_chat.then(|| format!("`torch2carton chat {}` talks with it", shell_quoted_path(path)))
}

#[cfg(not(feature = "tokenizer"))]
fn next_command(_: &ConvertReport) -> Option<String> {
    None
}

/// Returns the lines on what steps did to the tensors, for any output.
fn step_fields(report: &ConvertReport) -> [(&'static str, Option<String>); 2] {
    let numbers = report.dequantized.iter();
    let numbers =
        numbers.map(|row| format!("{}: {} to {}", row.scheme, format_things(row.tensors, "tensor"), row.to));
    let numbers = (!report.dequantized.is_empty()).then(|| numbers.collect::<Vec<_>>().join("; "));
    let casts = report.casts.iter();
    let casts = casts
        .map(|cast| format!("{} from {} to {}", format_things(cast.tensors, "tensor"), cast.from, cast.to));
    let casts = (!report.casts.is_empty()).then(|| casts.collect::<Vec<_>>().join(", "));
    [("dequantized", numbers), ("cast", casts)]
}
