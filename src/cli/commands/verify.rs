//! `torch2carton verify`: checks every hash, checksum and rule of a carton, and optionally the bits of every tensor.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Result, bail};
use carton_tools::{Code, VerifyOptions};
use pipeline::{counted, problems, size};

use crate::cli::args::{Verify, shards};
use crate::cli::ui::carton_advice;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::terminal::{self, safe};

pub(crate) fn verify(args: &Verify, quiet: bool) -> Result<ExitCode> {
    let mut options = VerifyOptions::new(&args.file);
    options.against.clone_from(&args.against);
    options.shards = shards(args.single);
    options.selection = args.select.selection();
    let progress = Progress::new(quiet || args.json);
    let report = carton_tools::verify(&options, &progress)?;
    progress.clear();
    let mut out = io::BufWriter::new(io::stdout().lock());
    if args.json {
        super::json(&mut out, &report)?;
    } else {
        for finding in &report.findings {
            writeln!(out, "{}", safe(&finding.what))?;
        }
    }
    out.flush()?;
    if !report.ok {
        bail!("{}: {}", report.file, problems(report.findings.len()));
    }
    if !quiet && !args.json {
        report.notes.iter().for_each(|note| terminal::note(carton_advice::note(note, &report.file)));
        let hashes =
            if report.manifest_sha256.is_some() { "all hashes match" } else { "no hashes to compare" };
        let equal = match report.code {
            Some(Code::Equal) => "equal bit for bit",
            _ => "with equal stored values",
        };
        let tensors = report.tensors_compared.map(|count| format!(", {} {equal}", counted(count, "tensor")));
        let tensors = tensors.unwrap_or_default();
        let (file, files, nbytes) = (safe(&report.file), counted(report.files, "file"), size(report.bytes));
        terminal::summary(format_args!("{file}: {files}, {nbytes}, {hashes}{tensors}"));
    }
    Ok(ExitCode::SUCCESS)
}
