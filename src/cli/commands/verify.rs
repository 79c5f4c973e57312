//! `torch2carton verify`: checks every hash, checksum and rule of a carton, and optionally the bits of every tensor.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use byte_source::{format_bytes, format_things};
use carton_tools::{CartonNote, CodeStatus};
use convert::{StatementFinding, StatementOptions};
use open::Note;

use crate::cli::args::Verify;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::terminal::{self, escape_hidden};
use crate::cli::ui::{carton_advice, errors, stdin};

pub(crate) fn verify(args: &Verify, quiet: bool) -> Result<ExitCode> {
    stdin::reject(&args.file, "verify")?;
    if let Some(options) = args.statement_options()? {
        return verify_statement(args, &options, quiet);
    }
    let options = args.options()?;
    let progress = Progress::new(quiet || args.json);
    let report = carton_tools::verify(&options, &convert::default_modules, &progress)?;
    progress.clear();
    let mut out = io::BufWriter::new(io::stdout().lock());
    if args.json {
        super::write_report_line(&mut out, &report, &args.remote)?;
    } else {
        for finding in &report.findings {
            writeln!(out, "{}", escape_hidden(&finding.what))?;
        }
    }
    out.flush()?;
    if !quiet && !args.json {
        let explains = |note: &&CartonNote| {
            report.ok || matches!(note, CartonNote::Checkpoint(Note::ComparedAsStored { .. }))
        };
        let notes = report.notes.iter().filter(explains);
        notes.for_each(|note| terminal::note(carton_advice::carton_note_text(note, &report.file)));
    }
    if !report.ok {
        let is_damaged = report.findings.iter().any(|finding| finding.what.contains("damaged"));
        let advice = if is_damaged { "; download or copy it again" } else { "" };
        bail!("{}: {} found{advice}", report.file, format_things(report.findings.len(), "problem"));
    }
    if !quiet && !args.json {
        let hashes =
            if report.manifest_sha256.is_some() { "all hashes match" } else { "no hashes to compare" };
        let equal = match report.code {
            // An output that is not a carton has no code.
            Some(CodeStatus::Equal) | None => "equal bit for bit",
            _ => "with equal stored values",
        };
        let tensors =
            report.tensors_compared.map(|count| format!(", {} {equal}", format_things(count, "tensor")));
        let tensors = tensors.unwrap_or_default();
        let (file, files, nbytes) =
            (escape_hidden(&report.file), format_things(report.files, "file"), format_bytes(report.bytes));
        terminal::summary(format_args!("{file}: {files}, {nbytes}, {hashes}{tensors}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Verifies an output by its statement.
fn verify_statement(args: &Verify, options: &StatementOptions, quiet: bool) -> Result<ExitCode> {
    let progress = Progress::new(quiet || args.json);
    let report = convert::verify_statement(options, &progress)?;
    progress.clear();
    let mut out = io::BufWriter::new(io::stdout().lock());
    if args.json {
        super::write_report_line(&mut out, &report, &args.remote)?;
    } else {
        for StatementFinding { file, offset, what, .. } in &report.findings {
            let file = if file.is_empty() { String::new() } else { format!("{}: ", escape_hidden(file)) };
            let offset = offset.map_or_else(String::new, |offset| format!(" at byte {offset}"));
            writeln!(out, "{file}{}{offset}", escape_hidden(what))?;
        }
    }
    out.flush()?;
    if !report.ok {
        let count = format_things(report.findings.len(), "difference");
        errors::print_error(&anyhow!("{}: {count} found", report.file));
        return Ok(ExitCode::FAILURE);
    }
    if !quiet && !args.json {
        let (file, files, nbytes) =
            (escape_hidden(&report.file), format_things(report.files, "file"), format_bytes(report.bytes));
        let inputs = format_things(report.inputs, "input");
        terminal::summary(format_args!(
            "{file}: {files}, {nbytes}, made from {inputs} as the statement says"
        ));
    }
    Ok(ExitCode::SUCCESS)
}
