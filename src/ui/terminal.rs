//! How text looks to a person: colours and notes.

use std::fmt::Display;
use std::io::Write;

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
pub(crate) fn tell(text: impl Display) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Whether the reader of our output went away, as `head` does.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| match cause.downcast_ref::<std::io::Error>() {
        Some(cause) => cause.kind() == std::io::ErrorKind::BrokenPipe,
        None => false,
    })
}
