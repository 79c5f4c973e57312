//! `torch2carton convert --each`: converts many checkpoints, each on its own.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use byte_source::{FileError, Location};
use convert::{BatchItem, BatchOptions, PipelineReport, Resume};
use serde_json::{Value, json};

use super::convert_report::{error_object, print_report, with_advice};
use crate::cli::args::Convert;
use crate::cli::ui::errors;
use crate::cli::ui::escapes::{EscapingJsonFormatter, escape_hidden};
use crate::cli::ui::invocation::UsageError;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::shell::shell_quoted_path;
use crate::cli::ui::table::truncate_cell;
use crate::cli::ui::terminal::{self, BOLD, DIM};

/// Maximum number of bytes of a list of files.
const LIST_MAX: u64 = 256 << 20;
/// Number of the files left out that are named.
const NAMES_MAX: usize = 5;
/// Maximum number of conversions that run at the same time without `--jobs`.
const JOBS_MAX: usize = 4;

pub(super) fn convert_each(args: &Convert, quiet: bool) -> Result<ExitCode> {
    let mut options = args.options()?;
    if let Some(list) = &args.files_from {
        options.inputs.extend(listed_files(list)?.into_iter().map(Location::from));
    }
    if options.inputs.is_empty() {
        return Err(UsageError("--files-from: the list has no files".to_owned()).into());
    }
    let batch = batch_options(args);
    let mut results = args.results.as_deref().map(ResultsFile::open).transpose()?;
    let progress = Progress::new(quiet || args.json || batch.jobs > NonZeroUsize::MIN);
    let mut left_out = Vec::new();
    let report = convert::convert_each(&options, batch, &progress, &mut |item| {
        progress.clear();
        if let BatchItem::LeftOut { input } = &item {
            left_out.push(input.clone());
        }
        let reported = report_item(args, quiet, item, results.as_mut());
        reported.map_err(|reason| FileError::Output { what: "the listing", reason }.into())
    })?;
    if !quiet {
        print_left_out(&left_out);
        let skipped = if args.resume { format!(", {} skipped", report.skipped) } else { String::new() };
        terminal::summary(format_args!(
            "{BOLD}{} converted{skipped}, {} failed{BOLD:#}",
            report.converted, report.failed
        ));
    }
    Ok(if report.failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn batch_options(args: &Convert) -> BatchOptions {
    let resume = Resume::new(args.resume, args.checksum);
    BatchOptions::from(resume).jobs(args.jobs.unwrap_or_else(default_jobs))
}

/// Returns the number of inputs that are worked on at the same time if the user names none.
pub(super) fn default_jobs() -> NonZeroUsize {
    NonZeroUsize::new(byte_source::core_share().min(JOBS_MAX)).unwrap_or(NonZeroUsize::MIN)
}

/// Prints the result of one input, and appends its object to the file of results.
fn report_item(
    args: &Convert,
    quiet: bool,
    item: BatchItem,
    results: Option<&mut ResultsFile>,
) -> io::Result<()> {
    let is_listed = args.json || results.is_some();
    let object = match item {
        BatchItem::Converted(report) => {
            let object = is_listed.then(|| serde_json::to_value(&report)).transpose()?;
            if !args.json {
                print_report(&report, quiet, true)?;
            }
            object
        }
        BatchItem::Pipeline(report) => {
            if !(quiet || args.json) {
                print_pipeline(&report);
            }
            is_listed.then(|| serde_json::to_value(&report)).transpose()?
        }
        BatchItem::Skipped { input, output } => {
            if !(quiet || args.json) {
                terminal::note(format!("{} is skipped: {} is whole", input.display(), output.display()));
            }
            let (file, output) = (input.display().to_string(), output.display().to_string());
            Some(json!({ "schema_version": 1, "file": file, "output": output, "skipped": true }))
        }
        BatchItem::LeftOut { input } => {
            Some(json!({ "schema_version": 1, "file": input.display().to_string(), "left_out": true }))
        }
        BatchItem::Failed { input, error } => {
            let (code, error) = (error.kind().name(), with_advice(error, args));
            errors::print_error(&error);
            Some(error_object(&input.display().to_string(), code, &error))
        }
    };
    let Some(mut object) = object else { return Ok(()) };
    add_status(&mut object);
    if let (Some(members), Some(traffic)) = (object.as_object_mut(), args.remote.take_traffic()) {
        members.insert("remote".to_owned(), serde_json::to_value(traffic)?);
    }
    if args.json {
        super::write_json_line(&mut io::stdout().lock(), &object)?;
    }
    results.map_or(Ok(()), |results| results.append(&object))
}

/// Prints the first files that are not named like checkpoints.
fn print_left_out(files: &[PathBuf]) {
    let Some(first) = files.first() else { return };
    let names: Vec<String> = files.iter().take(NAMES_MAX).map(|file| escape_hidden(file.display())).collect();
    let rest = files.len().saturating_sub(names.len());
    let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    let reason = if files.len() == 1 { "its name" } else { "their names" };
    terminal::note(format!(
        "left out because of {reason}: {}{rest}; `torch2carton {}` converts one",
        names.join(", "),
        shell_quoted_path(first)
    ));
}

/// Prints what of a pipeline is next to its models, and what is not.
fn print_pipeline(report: &PipelineReport) {
    if !report.left_out.is_empty() {
        let left_out = report.left_out.iter().map(escape_hidden).collect::<Vec<_>>().join(", ");
        terminal::note(format!("left out of the pipeline: {left_out}"));
    }
    terminal::summary(format_args!("{BOLD}{}{BOLD:#}", escape_hidden(&report.output)));
    let files = truncate_cell(&escape_hidden(report.files.join(", ")));
    terminal::summary(format_args!("  {DIM}files     {DIM:#}{files}"));
}

/// Adds the members that the lines of `batch` have, too.
fn add_status(object: &mut Value) {
    let status = if object.get("error").is_some() { "failed" } else { "ok" };
    let input = object.get("file").cloned().unwrap_or_default();
    if let Some(members) = object.as_object_mut() {
        members.insert("input".to_owned(), input);
        members.insert("status".to_owned(), status.into());
    }
}

/// Reads the paths in a list: separated by NUL if there is one, otherwise one on each line. Empty ones are left out.
fn listed_files(list: &Path) -> Result<Vec<PathBuf>> {
    let mut bytes = Vec::new();
    let name = if list == Path::new("-") { "standard input".to_owned() } else { list.display().to_string() };
    let reader: Box<dyn Read> = match list {
        list if list == Path::new("-") => Box::new(io::stdin().lock()),
        list => Box::new(File::open(list).with_context(|| format!("cannot read {name}"))?),
    };
    let read = reader.take(LIST_MAX.saturating_add(1)).read_to_end(&mut bytes);
    if read.with_context(|| format!("cannot read {name}"))? as u64 > LIST_MAX {
        let limit = byte_source::format_bytes(LIST_MAX);
        return Err(UsageError(format!("--files-from: {name} has more than {limit}")).into());
    }
    let separator = if bytes.contains(&0) { 0 } else { b'\n' };
    let lines = bytes.split(|byte| *byte == separator);
    let lines =
        lines.map(|line| if separator == 0 { line } else { line.strip_suffix(b"\r").unwrap_or(line) });
    lines.filter(|line| !line.is_empty()).map(path_from_bytes).collect()
}

#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "other systems refuse paths that are not UTF-8")]
fn path_from_bytes(bytes: &[u8]) -> Result<PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(bytes)))
}

#[cfg(not(unix))]
fn path_from_bytes(bytes: &[u8]) -> Result<PathBuf> {
    Ok(PathBuf::from(std::str::from_utf8(bytes).context("--files-from: a path is not UTF-8")?))
}

/// File, or standard output, to which the object of each input is appended, a line each.
struct ResultsFile(Box<dyn Write>);

impl ResultsFile {
    fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self(Box::new(io::stdout())));
        }
        let open = || OpenOptions::new().create(true).append(true).open(path);
        let file = std::fs::create_dir_all(output::parent_folder(path)).and_then(|()| open());
        Ok(Self(Box::new(file.with_context(|| format!("cannot write {}", path.display()))?)))
    }

    /// Appends one line with a single write, so that an interruption leaves whole lines.
    fn append(&mut self, object: &Value) -> io::Result<()> {
        let mut line = Vec::new();
        let mut json = serde_json::Serializer::with_formatter(&mut line, EscapingJsonFormatter);
        serde::Serialize::serialize(object, &mut json)?;
        line.push(b'\n');
        self.0.write_all(&line)
    }
}
