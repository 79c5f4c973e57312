//! `torch2carton convert`: converts a checkpoint into a carton, or into another file of tensors.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::ValueEnum as _;
use pipeline::{
    Architecture, BatchItem, CartonReport, ConvertReport, Error, HyperparameterKind, OutputReport,
    PortReport, SelfTestReport, format_bytes, format_count, format_things,
};
use serde_json::json;

use crate::cli::args::{Convert, ToArg};
use crate::cli::ui::invocation::{UsageError, typed_command};
use crate::cli::ui::progress::Progress;
use crate::cli::ui::shell::shell_quoted_path;
use crate::cli::ui::table::truncate_cell;
use crate::cli::ui::terminal::{self, BOLD, DIM, escape_hidden};
use crate::cli::ui::{advice, errors, flags};

pub(crate) fn convert(args: &Convert, quiet: bool) -> Result<ExitCode> {
    if args.output.as_deref() == Some(Path::new("-")) {
        return Err(UsageError(
            "-o -: an output cannot go to standard output, because some of its first bytes are known last; name a file"
                .to_owned(),
        )
        .into());
    }
    let progress = Progress::new(quiet || args.json);
    if args.each {
        return convert_each_file(args, quiet, &progress);
    }
    let report = pipeline::convert(&args.options()?, &progress).map_err(|error| with_advice(error, args))?;
    progress.clear();
    print_report(&report, args.json, quiet)?;
    Ok(ExitCode::SUCCESS)
}

fn convert_each_file(args: &Convert, quiet: bool, progress: &Progress) -> Result<ExitCode> {
    let options = args.options()?;
    let report = pipeline::convert_each(&options, args.resume, progress, &mut |result| {
        progress.clear();
        match result {
            BatchItem::Converted(report) => print_report(&report, args.json, quiet).map_err(Error::Output)?,
            BatchItem::Skipped { input, output } if args.json => {
                let (file, output) = (input.display().to_string(), output.display().to_string());
                let object = json!({ "schema_version": 1, "file": file, "output": output, "skipped": true });
                super::write_json_line(&mut io::stdout().lock(), &object).map_err(Error::Output)?;
            }
            BatchItem::Skipped { input, output } => {
                if !quiet {
                    terminal::note(format!("{} is skipped: {} is whole", input.display(), output.display()));
                }
            }
            BatchItem::Failed { input, error } => {
                let error = with_advice(error, args);
                if args.json {
                    let (file, text) = (input.display().to_string(), errors::error_chain_text(&error));
                    let object = json!({ "schema_version": 1, "file": file, "error": text });
                    super::write_json_line(&mut io::stdout().lock(), &object).map_err(Error::Output)?;
                }
                errors::print_error(&error);
            }
        }
        Ok(())
    })?;
    if !quiet {
        let skipped = if args.resume { format!(", {} skipped", report.skipped) } else { String::new() };
        terminal::summary(format_args!(
            "{BOLD}{} converted{skipped}, {} failed{BOLD:#}",
            report.converted, report.failed
        ));
    }
    Ok(if report.failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

const KNOWN_VALUES_HINT: &str = " (Llama 1 and 2: 10000 and 1e-5 or 1e-6; Llama 3: 500000 and 1e-5)";

/// Returns the error, with a command that repeats the typed arguments and has placeholders for missing hyperparameters.
fn with_advice(error: Error, args: &Convert) -> anyhow::Error {
    let missing = match &error {
        Error::Model { root, reason, .. } => match &**reason {
            decoder::Error::MissingHyperparameters { facts, .. } => Some((root, facts)),
            _ => None,
        },
        _ => None,
    };
    let Some((root, facts)) = missing else { return error.into() };
    let known = if *facts == [HyperparameterKind::Heads] { "" } else { KNOWN_VALUES_HINT };
    let command =
        format!("{} {}{}", typed_command(), shell_quoted_path(root), hyperparameter_flags(args, facts));
    // Triton cannot serve tensors without a forward.
    let weights =
        if args.to == Some(ToArg::Triton) { String::new() } else { format!("; {}", advice::WEIGHTS_ADVICE) };
    anyhow!("{error}; run `{command}`{known}{weights}")
}

/// Returns the flags that were used, and the flags for the missing `facts` with words instead of numbers: a guess that fits
/// the shapes would make a wrong model.
fn hyperparameter_flags(args: &Convert, facts: &[HyperparameterKind]) -> String {
    let arch = match &args.model.arch {
        Architecture::Named(name) => format!(" --arch {name}"),
        Architecture::Auto | Architecture::Weights => String::new(),
    };
    let word = |fact| match fact {
        HyperparameterKind::Heads => "N",
        HyperparameterKind::RopeTheta => "BASE",
        HyperparameterKind::RopeFactor => "FACTOR",
        HyperparameterKind::NormEps => "EPS",
    };
    let numbers = args.model.overrides().numbers().into_iter().filter_map(|(fact, number)| {
        let missing = || facts.contains(&fact).then(|| word(fact).to_owned());
        Some(format!(" {} {}", flags::hyperparameter_flag(fact), number.or_else(missing)?))
    });
    let keep = if args.model.keep_extra { " --keep-extra" } else { "" };
    let to = args.to.and_then(|to| to.to_possible_value());
    let to = to.map_or_else(String::new, |to| format!(" --to {}", to.get_name()));
    let output =
        args.output.as_deref().map_or_else(String::new, |path| format!(" -o {}", shell_quoted_path(path)));
    format!("{arch}{}{keep}{to}{output}", numbers.collect::<String>())
}

fn print_report(report: &ConvertReport, json: bool, quiet: bool) -> io::Result<()> {
    if json {
        return super::write_json_line(&mut io::stdout().lock(), report);
    }
    if quiet {
        return Ok(());
    }
    report.notes.iter().for_each(|note| terminal::note(advice::note_text(note, &report.file)));
    print_summary(report);
    Ok(())
}

/// Prints the output, its size, and the speed of the conversion.
fn print_summary(report: &ConvertReport) {
    let seconds = report.seconds;
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let speed = report.nbytes as f64 / 1e9 / seconds.max(1e-9);
    let (tensors, parameters) = (format_things(report.tensors, "tensor"), report.totals.parameters);
    let parameters = if parameters == 1 {
        "1 parameter".to_owned()
    } else {
        format!("{} parameters", format_count(parameters))
    };
    let size = if report.written {
        format!("{} in {seconds:.2} s, {speed:.2} GB/s", format_bytes(report.nbytes))
    } else {
        format!("{}; nothing was written (--dry-run)", format_bytes(report.nbytes))
    };
    let holds = format!("{tensors}, {parameters}");
    let casts = report
        .casts
        .iter()
        .map(|cast| format!("{} from {} to {}", format_things(cast.tensors, "tensor"), cast.from, cast.to));
    let casts = (!report.casts.is_empty()).then(|| casts.collect::<Vec<_>>().join(", "));
    let fields = match &report.format_report {
        OutputReport::Carton(carton) => vec![
            ("module", Some(module_text(carton))),
            ("holds", Some(holds)),
            ("cast", casts),
            ("size", Some(size)),
            ("self test", carton.self_test.as_ref().map(self_test_text)),
            ("misc", Some(misc_text(carton))),
            ("manifest", carton.manifest_sha256.clone()),
        ],
        OutputReport::Safetensors(made) => {
            let ties = (!made.ties.is_empty()).then(|| {
                let names = if made.ties.len() == 1 {
                    "1 name"
                } else {
                    &format!("{} names", format_count(made.ties.len() as u64))
                };
                format!("{names} of the same memory in the metadata")
            });
            let files = joined_file_names(&made.files);
            vec![
                ("holds", Some(holds)),
                ("cast", casts),
                ("ties", ties),
                ("size", Some(size)),
                ("files", files),
            ]
        }
        OutputReport::Torch(made) => {
            vec![("holds", Some(holds)), ("size", Some(size)), ("files", joined_file_names(&made.files))]
        }
        OutputReport::Triton(made) => vec![
            ("module", Some(signature_text(&made.module, (&made.inputs, &made.outputs)))),
            ("holds", Some(holds)),
            ("cast", casts),
            ("size", Some(size)),
            ("files", joined_file_names(&made.files)),
        ],
        _ => vec![("holds", Some(holds)), ("cast", casts), ("size", Some(size))],
    };
    terminal::summary(format_args!("{BOLD}{}{BOLD:#}", escape_hidden(&report.output)));
    for (label, value) in fields.into_iter().filter_map(|(label, value)| Some((label, value?))) {
        terminal::summary(format_args!("  {DIM}{label:<10}{DIM:#}{}", truncate_cell(&escape_hidden(value))));
    }
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

/// Describes the inputs and outputs of a module.
fn signature_text(module: &str, (inputs, outputs): (&[PortReport], &[PortReport])) -> String {
    match inputs {
        [] => format!("{module}: returns {}", port_names_text(outputs)),
        inputs => format!("{module}: {} -> {}", port_names_text(inputs), port_names_text(outputs)),
    }
}

fn self_test_text(test: &SelfTestReport) -> String {
    match test.expected_out.as_slice() {
        [] => format!("{}, without expected outputs", test.inputs.join(", ")),
        outputs => format!("{} -> {}", test.inputs.join(", "), outputs.join(", ")),
    }
}

fn misc_text(carton: &CartonReport) -> String {
    let mut misc = if carton.misc.is_empty() { "nothing".to_owned() } else { carton.misc.join(", ") };
    if carton.is_decoder() && !carton.has_tokenizer {
        misc.push_str("; no tokenizer found (add one with --misc FILE)");
    }
    misc
}

/// Returns the names of the required ports if there are at most four, else their number.
fn port_names_text(ports: &[PortReport]) -> String {
    let names = ports.iter().filter(|port| !port.optional).map(|port| port.name.as_str());
    match names.collect::<Vec<_>>() {
        many if many.len() > 4 => format!("{} tensors", many.len()),
        few => few.join(", "),
    }
}
