//! Standard input as a file or a text.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};

use super::invocation::UsageError;

/// Path under which standard input is opened as a file.
const STDIN_PATH: &str = "/dev/stdin";
/// True once standard input is read as a file.
static IS_A_FILE: AtomicBool = AtomicBool::new(false);

/// Maximum number of bytes of a file from standard input, which go to a temporary file.
const FILE_MAX: u64 = 64 << 30;
/// Maximum number of bytes of a text from standard input.
const TEXT_MAX: u64 = 16 << 20;

/// Returns a path to the file that an argument names: standard input for `-`, the path itself otherwise, or an address without what
/// may be secret in it.
///
/// A pipe cannot be read at any position, so its bytes go to a temporary file without a name, which replaces standard input.
///
/// # Errors
/// When standard input is a terminal, or cannot be read, or the temporary file cannot be written.
pub(crate) fn input_path(path: &Path) -> Result<PathBuf> {
    if path != Path::new("-") {
        return Ok(output::shown_path(path));
    }
    reject_terminal("a file")?;
    let stdin = io::stdin();
    if !is_regular_file() {
        let mut file: File =
            tempfile::tempfile().context("cannot create a temporary file for standard input")?;
        let copied = io::copy(&mut stdin.lock().take(FILE_MAX.saturating_add(1)), &mut file);
        if copied.context("cannot copy standard input to a temporary file")? > FILE_MAX {
            return Err(UsageError(format!(
                "standard input has more than {}; write it to a file",
                byte_source::format_bytes(FILE_MAX)
            ))
            .into());
        }
        file.flush()?;
        file.rewind()?;
        replace_stdin(&file)?;
    }
    IS_A_FILE.store(true, Ordering::Relaxed);
    Ok(PathBuf::from(STDIN_PATH))
}

/// Refuses `-` for a command that needs a file with a name, unless there is such a file.
///
/// # Errors
/// When the path is `-` and no file has that name.
pub(crate) fn reject(path: &Path, command: &str) -> Result<(), UsageError> {
    if path == Path::new("-") && !path.exists() {
        return Err(UsageError(format!(
            "`{command}` needs a file; `-` is standard input for inspect, scan, trace, report, diff and digest, and for the text of run"
        )));
    }
    Ok(())
}

/// Gives a report on standard input the path that was typed.
pub(crate) fn restore_typed_path(file: &mut String) {
    if file == STDIN_PATH && IS_A_FILE.load(Ordering::Relaxed) {
        "-".clone_into(file);
    }
}

/// Returns the text of an error with the name of standard input in place of its path, if it was read as a file.
pub(crate) fn with_name(text: String) -> String {
    if !IS_A_FILE.load(Ordering::Relaxed) {
        return text;
    }
    // In a command to type, it is `-`.
    text.replace(&format!("{STDIN_PATH}: "), "standard input: ").replace(STDIN_PATH, "-")
}

/// Returns the text on standard input, without the line feed at its end.
///
/// # Errors
/// When standard input is a terminal, cannot be read, is too long, or is not UTF-8.
pub(crate) fn input_text() -> Result<String> {
    reject_terminal("a text")?;
    whole_text()
}

/// Returns the text on standard input of a command that reads nothing else there, without the line feed at its end.
///
/// # Errors
/// When standard input cannot be read, is too long, or is not UTF-8.
pub(crate) fn whole_text() -> Result<String> {
    let mut text = String::new();
    let read = io::stdin().lock().take(TEXT_MAX.saturating_add(1)).read_to_string(&mut text);
    if read.context("cannot read the text on standard input")? as u64 > TEXT_MAX {
        let limit = byte_source::format_bytes(TEXT_MAX);
        return Err(UsageError(format!("the text on standard input has more than {limit}")).into());
    }
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}

fn reject_terminal(what: &str) -> Result<(), UsageError> {
    if io::IsTerminal::is_terminal(&io::stdin()) {
        return Err(UsageError(format!("`-` reads {what} from standard input, which is a terminal")));
    }
    Ok(())
}

#[cfg(unix)]
fn is_regular_file() -> bool {
    use std::os::fd::AsFd;
    let file = io::stdin().as_fd().try_clone_to_owned().map(File::from);
    file.and_then(|file| file.metadata()).is_ok_and(|metadata| metadata.is_file())
}

#[cfg(unix)]
fn replace_stdin(file: &File) -> io::Result<()> {
    Ok(rustix::stdio::dup2_stdin(file)?)
}

#[cfg(not(unix))]
fn is_regular_file() -> bool {
    false
}

#[cfg(not(unix))]
fn replace_stdin(_: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
