//! Prints the report of a conversion, or its error with advice.

use std::io::{self, Write};

use anyhow::anyhow;
use byte_source::{format_bytes, format_count, format_things};
use convert::{
    ArchitectureChoice, CartonReport, ConvertReport, Error, HyperparameterKind, ModelOptions, OutputKind,
    OutputReport, PortReport, StoredSelfTest, Target, TensorListing, TritonReport,
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

const KNOWN_VALUES_HINT: &str = " (Llama 1 and 2: 10000 and 1e-5 or 1e-6; Llama 3: 500000 and 1e-5)";

/// Returns the error, with a command that repeats the typed arguments and has placeholders for missing hyperparameters.
pub(super) fn with_advice(error: Error, args: &Convert) -> anyhow::Error {
    let missing = match &error {
        Error::Model { root, reason } => match reason.detail() {
            Some(decoder::Problem::MissingHyperparameters { facts, .. }) => Some((root, facts)),
            _ => None,
        },
        _ => None,
    };
    let Some((root, facts)) = missing else { return error.into() };
    let known = if *facts == [HyperparameterKind::Heads] { "" } else { KNOWN_VALUES_HINT };
    let command =
        format!("{} {}{}", typed_command(), shell_quoted_path(root), hyperparameter_flags(args, facts));
    // Triton cannot serve tensors without a forward.
    let weights = if args.options.target.kind() == Some(OutputKind::Triton) {
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
    let model = match &options.target {
        Target::Carton(carton) => &carton.model,
        Target::Triton(triton) => &triton.model,
        _ => &default,
    };
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
    let kind = options.target.kind().unwrap_or_default();
    let is_named = options.output.as_deref().is_some_and(|path| OutputKind::from_path(path) == Some(kind));
    let to = if kind == OutputKind::Carton || is_named { String::new() } else { format!(" --to {kind}") };
    let output =
        options.output.as_deref().map_or_else(String::new, |path| format!(" -o {}", shell_quoted_path(path)));
    format!("{arch}{}{keep}{to}{output}", numbers.collect::<String>())
}

pub(super) fn print_report(report: &ConvertReport, quiet: bool) -> io::Result<()> {
    if quiet {
        return Ok(());
    }
    print_listing(&report.listing)?;
    report.notes.iter().for_each(|note| terminal::note(advice::note_text(note, &report.file)));
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
    let (mut before, mut after) = (Vec::new(), Vec::new());
    match &report.format_report {
        OutputReport::Carton(carton) => {
            before.push(("module", Some(module_text(carton))));
            after.push(("self test", carton.self_test.as_ref().map(self_test_text)));
            after.push(("misc", misc_text(carton)));
            after.push(("manifest", carton.manifest_sha256.clone()));
        }
        OutputReport::Safetensors(made) => after.push(("files", joined_file_names(&made.files))),
        OutputReport::Torch(made) => after.push(("files", joined_file_names(&made.files))),
        OutputReport::Triton(made) => {
            before.push(("module", Some(triton_module_text(made))));
            after.push(("files", joined_file_names(&made.files)));
        }
        _ => {}
    }
    let mut fields = before;
    fields.push(("tensors", Some(holds)));
    fields.extend(step_fields(report));
    fields.push(("ties", ties_text(report)));
    fields.push(("size", Some(size)));
    fields.extend(after);
    fields.push(("digest", report.digest.clone()));
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

/// Counts the names of which only the metadata of a safetensors file has the tensor.
fn ties_text(report: &ConvertReport) -> Option<String> {
    let OutputReport::Safetensors(made) = &report.format_report else { return None };
    let count = match made.ties.len() {
        0 => return None,
        1 => "1 name".to_owned(),
        count => format!("{} names", format_count(count as u64)),
    };
    Some(format!("{count} of the same memory in the metadata"))
}

/// Joins the names of the files if there are several.
fn joined_file_names(files: &[String]) -> Option<String> {
    (files.len() > 1).then(|| files.join(", "))
}

fn module_text(carton: &CartonReport) -> String {
    let why = carton.why_weights.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
    let module = format!("{}{why}", carton.module);
    if let Some(forward) = &carton.signature {
        return format!("{module}: forward{forward}");
    }
    signature_text(&module, (&carton.inputs, &carton.outputs))
}

fn triton_module_text(triton: &TritonReport) -> String {
    match &triton.signature {
        Some(forward) => format!("{}: forward{forward}", triton.module),
        None => signature_text(&triton.module, (&triton.inputs, &triton.outputs)),
    }
}

fn signature_text(module: &str, (inputs, outputs): (&[PortReport], &[PortReport])) -> String {
    match inputs {
        [] => format!("{module}: returns {}", port_names_text(outputs)),
        inputs => format!("{module}: {} -> {}", port_names_text(inputs), port_names_text(outputs)),
    }
}

fn self_test_text(test: &StoredSelfTest) -> String {
    match test.expected_out.as_slice() {
        [] => format!("{}, without expected outputs", test.inputs.join(", ")),
        outputs => format!("{} -> {}", test.inputs.join(", "), outputs.join(", ")),
    }
}

/// Lists the files in misc/ and the tokenizer that a decoder lacks; `None` if there is nothing to say.
fn misc_text(carton: &CartonReport) -> Option<String> {
    let files = (!carton.misc.is_empty()).then(|| carton.misc.join(", "));
    let missing = (carton.is_decoder() && !carton.has_tokenizer)
        .then(|| "no tokenizer found (add one with --misc FILE)".to_owned());
    let parts: Vec<String> = files.into_iter().chain(missing).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Returns the names of the required ports if there are at most four, else their number.
fn port_names_text(ports: &[PortReport]) -> String {
    let names = ports.iter().filter(|port| !port.optional).map(|port| port.name.as_str());
    match names.collect::<Vec<_>>() {
        many if many.len() > 4 => format!("{} tensors", many.len()),
        few => few.join(", "),
    }
}
