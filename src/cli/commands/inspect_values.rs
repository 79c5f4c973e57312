//! `torch2carton inspect FILE NAME`: prints a tensor as NumPy does, or writes it to a file; prints a value.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow};
use byte_source::{FileError, ProgressReporter};
use inspect::{NamedContent, NamedItem};
use open::{Error, NpyFile, ValueRow};
use tensor::Tensor;

use crate::cli::args::Inspect;
use crate::cli::ui::invocation::UsageError;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::terminal::{self, BOLD, DIM, escape_hidden};
use crate::cli::ui::value_text::value_text;

pub(super) fn print_named(args: &Inspect, file: &Path, names: &[String], quiet: bool) -> Result<ExitCode> {
    if args.json || args.asks_for_rows() {
        let text = "--output, --force and --no-clobber are the only options for names of tensors and values; \
                    without names, --include lists some of the tensors";
        return Err(UsageError(text.to_owned()).into());
    }
    let input = args.remote.locate_or_stdin(file)?;
    let file = input.path();
    let items = inspect::find_named(&args.options(input.clone()), names, &Progress::new(true))?;
    if let Some(target) = &args.output {
        return write_tensor(args, file, target, &items, quiet);
    }
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    for (index, item) in items.iter().enumerate() {
        if items.len() > 1 {
            let gap = if index == 0 { "" } else { "\n" };
            writeln!(out, "{gap}{BOLD}{}{BOLD:#}", escape_hidden(&item.name))?;
        }
        print_item(&mut out, file, item)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn print_item(out: &mut dyn Write, file: &Path, item: &NamedItem) -> Result<()> {
    match &item.content {
        NamedContent::Tensor(tensor) => print_array(out, file, &item.name, tensor)?,
        NamedContent::Parts(parts) => {
            for (name, part) in parts {
                writeln!(out, "{DIM}{}{DIM:#}", escape_hidden(name))?;
                print_array(out, file, name, part)?;
            }
        }
        NamedContent::NoData(what) => {
            return Err(anyhow!("tensor `{}` has no data: {what}", escape_hidden(&item.name)));
        }
        NamedContent::Value(row) => writeln!(out, "{}", escape_hidden(value_text(&row.value)))?,
        NamedContent::Values(rows) => {
            for ValueRow { path, type_name, value, .. } in rows {
                let (path, type_name) = (escape_hidden(path), escape_hidden(type_name));
                writeln!(out, "{path}  {DIM}{type_name}{DIM:#}  {}", escape_hidden(value_text(value)))?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn print_array(out: &mut dyn Write, file: &Path, name: &str, tensor: &Tensor) -> Result<()> {
    let text = open::array_text(tensor).map_err(|error| error.in_tensor(name).in_file(file))?;
    Ok(writeln!(out, "{text}")?)
}

/// Writes the only item as a `.npy` file.
fn write_tensor(
    args: &Inspect,
    file: &Path,
    target: &Path,
    items: &[NamedItem],
    quiet: bool,
) -> Result<ExitCode> {
    let [NamedItem { name, content, .. }] = items else {
        return Err(UsageError("a .npy file has one tensor, but several names are given".to_owned()).into());
    };
    let tensor = match content {
        NamedContent::Tensor(tensor) => tensor,
        NamedContent::Parts(parts) => {
            let parts: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
            return Err(anyhow!(
                "tensor `{}` consists of several ones, and a .npy file has one: name {}",
                escape_hidden(name),
                escape_hidden(parts.join(" or "))
            ));
        }
        NamedContent::NoData(what) => {
            return Err(anyhow!("tensor `{}` has no data: {what}", escape_hidden(name)));
        }
        _ => return Err(anyhow!("`{}` is not a tensor, so it has no .npy file", escape_hidden(name))),
    };
    let failed = |error: Error| error.in_tensor(name).in_file(file);
    let npy = NpyFile::new(tensor).map_err(|problem| failed(problem.into()))?;
    let unobserved = ProgressReporter::unobserved();
    if target == Path::new("-") {
        if io::stdout().is_terminal() {
            let text = "standard output is a terminal, and a .npy file is not text; redirect it";
            return Err(UsageError(text.to_owned()).into());
        }
        let mut out = io::BufWriter::new(io::stdout().lock());
        let unwritten = |reason| FileError::Output { what: "to standard output", reason }.into();
        npy.write(&mut out, &unwritten, &unobserved).map_err(failed)?;
        out.flush()?;
    } else {
        let if_exists = args.if_exists;
        output::check_target(target, &[file], if_exists)?;
        let mut out = output::OutputFile::create(target, npy.nbytes())?;
        let unwritten = |reason| FileError::Write { path: target.to_owned(), reason }.into();
        npy.write(&mut out, &unwritten, &unobserved).map_err(failed)?;
        out.commit(if_exists).with_context(|| format!("cannot write {}", target.display()))?;
    }
    if npy.dtype() != tensor.dtype() && !quiet {
        terminal::note(format_args!(
            "NumPy has no {}; the file has the same values as {}",
            tensor.dtype().name(),
            npy.dtype().name()
        ));
    }
    Ok(ExitCode::SUCCESS)
}
