//! How text looks to a person: escapes, colours and notes.

use std::fmt::Display;
use std::io::Write;

use anstyle::{AnsiColor, Style};

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();

/// Text from a file, its control characters escaped: they could move the cursor or rename a window.
pub(crate) fn safe(text: impl Display) -> String {
    let text = text.to_string();
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // The bidirectional controls reorder what stands around them.
        let reorders =
            matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || reorders {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Prints something that the user should know.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(anstream::stderr(), "{YELLOW}note:{YELLOW:#} {}", safe(text));
}

/// Whether the reader of our output went away, as `head` does.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| match cause.downcast_ref::<std::io::Error>() {
        Some(cause) => cause.kind() == std::io::ErrorKind::BrokenPipe,
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(safe("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\\n");
    }
}
