//! Terminal output: colours, notes, and text without hidden characters.

use std::fmt::Display;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

pub(crate) use super::escapes::escape_hidden;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();

/// Returns the number of columns of the terminal that standard output is; `None` if it is not a terminal.
pub(crate) fn columns() -> Option<usize> {
    let is_terminal = io::IsTerminal::is_terminal(&io::stdout());
    let size = if is_terminal { terminal_size::terminal_size_of(io::stdout()) } else { None };
    size.map(|(width, _)| usize::from(width.0)).filter(|width| *width > 0)
}

/// Prints a note for the user on stderr.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(anstream::stderr(), "{YELLOW}note:{YELLOW:#} {}", escape_hidden(text));
}

/// Prints the summary of a command on stderr. Write errors are ignored, because the work is done.
pub(crate) fn summary(text: impl Display) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Writes the text of a model to standard output at once: raw, or on a terminal with hidden characters escaped.
pub(crate) fn write_text(text: &str, is_terminal: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if is_terminal {
        for part in text.split_inclusive(['\n', '\t']) {
            let end = part.ends_with(['\n', '\t']);
            let (line, end) = part.split_at(part.len() - usize::from(end));
            write!(out, "{}{end}", escape_hidden(line))?;
        }
    } else {
        out.write_all(text.as_bytes())?;
    }
    out.flush()
}

/// Returns true if the reader of standard output closed the pipe, as `head` does.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| match cause.downcast_ref::<io::Error>() {
        Some(cause) => cause.kind() == io::ErrorKind::BrokenPipe,
        None => false,
    })
}
