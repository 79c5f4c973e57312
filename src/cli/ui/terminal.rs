//! What a person sees on a terminal: colours, notes, and text without hidden characters.

use std::fmt::Display;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

pub(crate) use super::escapes::safe;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();

/// Prints something that the user should know.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(anstream::stderr(), "{YELLOW}note:{YELLOW:#} {}", safe(text));
}

/// Prints what was done, on stderr. By then the work is done, so that it does not matter whether anybody can read this.
pub(crate) fn summary(text: impl Display) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Writes text of a model to standard output at once: as it is, or on a terminal with its hidden characters escaped.
pub(crate) fn write_text(text: &str, is_terminal: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if is_terminal {
        for part in text.split_inclusive(['\n', '\t']) {
            let end = part.ends_with(['\n', '\t']);
            let (line, end) = part.split_at(part.len() - usize::from(end));
            write!(out, "{}{end}", safe(line))?;
        }
    } else {
        out.write_all(text.as_bytes())?;
    }
    out.flush()
}

/// Whether the reader of our output went away, as `head` does.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| match cause.downcast_ref::<io::Error>() {
        Some(cause) => cause.kind() == io::ErrorKind::BrokenPipe,
        None => false,
    })
}
