//! How text looks to a person: escapes, colours, errors and notes.

use std::fmt::Display;
use std::io::Write;

use anstyle::{AnsiColor, Style};

use super::advice;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
const RED: Style = AnsiColor::Red.on_default().bold();
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

/// Prints an error and its causes in one line.
pub(crate) fn error(error: &anyhow::Error) {
    // Nothing is left to do when stderr is closed.
    let _ = writeln!(anstream::stderr(), "{RED}error:{RED:#} {}", safe(chain(error)));
}

/// Prints an error that has several lines.
pub(crate) fn plain_error(text: &str) {
    let text: Vec<String> = text.lines().map(safe).collect();
    let _ = writeln!(anstream::stderr(), "{RED}error:{RED:#} {}", text.join("\n"));
}

/// An error and its causes. What the next cause says too, such as a path, is printed once. The texts of our libraries
/// contain their causes.
fn chain(error: &anyhow::Error) -> String {
    let mut texts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let advised = advice::text(cause);
        let is_whole = advised.is_some();
        let text = advised.unwrap_or_else(|| cause.to_string());
        if texts.last().is_some_and(|last| text.starts_with(last) || text.contains(&format!(" {last}:"))) {
            texts.pop();
        }
        texts.push(text);
        if is_whole {
            break;
        }
    }
    texts.join(": ")
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
    fn what_a_cause_repeats_is_printed_once() {
        let error = anyhow::anyhow!("cannot read a.pth: gone").context("a.pth").context("2 files");
        assert_eq!(chain(&error), "2 files: cannot read a.pth: gone");
        assert_eq!(chain(&anyhow::anyhow!("full").context("full")), "full");
        assert_eq!(chain(&anyhow::anyhow!("no .npy file").context("file")), "file: no .npy file");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(safe("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\\n");
    }
}
