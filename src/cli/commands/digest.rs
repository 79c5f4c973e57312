//! `torch2carton digest`: one hash for the tensors of a checkpoint or carton.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use byte_source::{Error, FileError, format_things};
use inspect::DigestReport;
use serde_json::json;

use super::convert_report::with_error_object;
use crate::cli::args::Digest;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::terminal::{self, escape_hidden};
use crate::cli::ui::{advice, errors, stdin};

/// Length of a digest in hexadecimal digits.
const DIGITS: usize = 64;

pub(crate) fn digest(args: &Digest, quiet: bool) -> Result<ExitCode> {
    if let Some(list) = &args.check {
        return check(args, list, quiet);
    }
    let several = args.files.len() > 1;
    let mut failed = 0_usize;
    for file in &args.files {
        let printed = digest_file(args, file, quiet).and_then(|report| print(args, file, &report));
        match printed.map_err(|error| with_error_object(error, file, args.json)) {
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

fn digest_file(args: &Digest, file: &Path, quiet: bool) -> Result<DigestReport> {
    let progress = Progress::new(quiet || args.json);
    let input = args.input(args.remote.locate_or_stdin(file)?);
    let mut report = inspect::digest(&input, &progress)?;
    stdin::restore_typed_path(&mut report.file);
    progress.clear();
    if !quiet && !args.json {
        let name = output::shown_path(file).display().to_string();
        report.notes.iter().for_each(|note| terminal::note(advice::open_note_text(note, &name)));
    }
    Ok(report)
}

fn print(args: &Digest, file: &Path, report: &DigestReport) -> Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    if args.json {
        super::write_report_line(&mut out, report, &args.remote)?;
    } else if args.lines {
        report.lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    } else {
        let (escaped, name) = escape_path(&output::shown_path(file).display().to_string());
        writeln!(out, "{escaped}{}  {}", report.digest, escape_hidden(name))?;
    }
    Ok(out.flush()?)
}

/// Compares the digests that `list` names with those of the files.
fn check(args: &Digest, list: &Path, quiet: bool) -> Result<ExitCode> {
    let text = if list == Path::new("-") {
        stdin::input_text()?
    } else {
        std::fs::read_to_string(list)
            .map_err(|reason| Error::from(FileError::Read { path: list.to_owned(), reason }))?
    };
    let (mut files, mut different, mut unread, mut malformed) = (0_usize, 0_usize, 0_usize, 0_usize);
    for line in text.lines().filter(|line| !line.is_empty()) {
        let Some((expected, path)) = parse_line(line) else {
            malformed += 1;
            continue;
        };
        files += 1;
        let found = match digest_file(args, &path, true) {
            Ok(report) => Some(report.digest),
            Err(error) => {
                errors::print_error(&error);
                unread += 1;
                None
            }
        };
        let is_equal = found.as_deref().is_some_and(|found| expected.eq_ignore_ascii_case(found));
        different += usize::from(found.is_some() && !is_equal);
        let mut out = io::stdout().lock();
        if args.json {
            let row = json!({
                "schema_version": 1,
                "file": path.display().to_string(),
                "ok": is_equal,
                "expected": expected,
                "found": found,
            });
            super::write_json_line(&mut out, &row)?;
        } else if !(quiet && is_equal) {
            let verdict = match (&found, is_equal) {
                (None, _) => "FAILED to read",
                (_, true) => "OK",
                (_, false) => "FAILED",
            };
            writeln!(out, "{}: {verdict}", escape_hidden(path.display()))?;
        }
    }
    if files == 0 {
        bail!("{}: no line has a digest and a path", list.display());
    }
    if malformed > 0 {
        let lines = format_things(malformed, "line");
        terminal::note(format_args!("{}: {lines} without a digest and a path", list.display()));
    }
    if different + unread > 0 {
        bail!("{different} of {} differ, {unread} cannot be read", format_things(files, "file"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the digest and the path of a line, in the format of `sha256sum`: a backslash at the start says that the path has
/// escapes, and a `*` before the path is ignored.
fn parse_line(line: &str) -> Option<(&str, PathBuf)> {
    let (is_escaped, line) = match line.strip_prefix('\\') {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (digest, rest) = line.split_at_checked(DIGITS)?;
    let path = rest.strip_prefix("  ").or_else(|| rest.strip_prefix(" *"))?;
    let is_digest = digest.bytes().all(|byte| byte.is_ascii_hexdigit()) && !path.is_empty();
    let path = if is_escaped { unescape_path(path)? } else { path.to_owned() };
    is_digest.then(|| (digest, path.into()))
}

/// Returns the start of a line, and the path with its backslashes and line ends escaped, as `sha256sum` does.
fn escape_path(path: &str) -> (&'static str, String) {
    if !path.contains(['\\', '\n', '\r']) {
        return ("", path.to_owned());
    }
    ("\\", path.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r"))
}

fn unescape_path(path: &str) -> Option<String> {
    let mut out = String::with_capacity(path.len());
    let mut chars = path.chars();
    while let Some(char) = chars.next() {
        out.push(match char {
            '\\' => match chars.next()? {
                '\\' => '\\',
                'n' => '\n',
                'r' => '\r',
                _ => return None,
            },
            char => char,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_sha256sum() {
        let digest = "0123456789abcdef".repeat(4);
        let parse = |line: &str| parse_line(line).map(|(digest, path)| (digest.to_owned(), path));
        let found = |path: &str| Some((digest.clone(), PathBuf::from(path)));
        assert_eq!(parse(&format!("{digest}  a b.pth")), found("a b.pth"));
        assert_eq!(parse(&format!("{digest} *x")), found("x"));
        assert_eq!(parse(&format!("\\{digest}  a\\nb\\\\c")), found("a\nb\\c"));
        for wrong in [digest.clone(), format!("{digest}  "), format!("{digest} x"), "x".to_owned()] {
            assert_eq!(parse(&wrong), None, "{wrong}");
        }
        assert_eq!(parse(&format!("g{}  x", &digest[1..])), None);
        for path in ["plain", "a\nb", "a\\b", "c\rd"] {
            let (start, name) = escape_path(path);
            assert_eq!(parse(&format!("{start}{digest}  {name}")), found(path));
        }
    }
}
