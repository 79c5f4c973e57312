//! How things look to a person: escaped text, numbers with units, colours, progress.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::ui::advice;

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

/// An error and its causes; what the next cause says too, such as a path, is said once.
fn chain(error: &anyhow::Error) -> String {
    let mut said: Vec<String> = Vec::new();
    for cause in error.chain().map(advice::cause) {
        let repeats = |last: &String| cause.starts_with(last) || cause.contains(&format!(" {last}:"));
        if said.last().is_some_and(repeats) {
            said.pop();
        }
        said.push(cause);
    }
    said.join(": ")
}

/// A number of things, such as `1 tensor` and `2 tensors`.
pub(crate) fn counted(n: usize, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
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

/// A number of bytes with a decimal unit, such as `16.1 GB`.
pub(crate) fn bytes(n: u64) -> String {
    scaled(n, 1000, &[" B", " kB", " MB", " GB", " TB", " PB", " EB"], 1)
}

/// A count with the words of the field, such as `8.03 B`.
pub(crate) fn count(n: u64) -> String {
    scaled(n, 1000, &["", " K", " M", " B", " T", " Q"], 2)
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn scaled(n: u64, base: u64, units: &[&str], digits: usize) -> String {
    let mut value = n as f64;
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    if n < base {
        return format!("{n}{unit}");
    }
    // 999.95 would be printed as 1000.0.
    while value >= base as f64 - 0.05 {
        let Some(next) = units.next() else { break };
        value /= base as f64;
        unit = next;
    }
    format!("{value:.digits$}{unit}")
}

/// Tells how far a long work is: a bar on a terminal, a line every 30 s elsewhere, nothing when quiet.
pub(crate) enum Progress {
    Quiet,
    Bar { bar: ProgressBar, since: Instant },
    Lines { name: String, total: u64, last: Instant },
}

const BETWEEN_LINES: Duration = Duration::from_secs(30);
/// What is done sooner needs no bar.
const BEFORE_BAR: Duration = Duration::from_millis(300);

impl Progress {
    /// Progress over `total` bytes of work on `name`.
    pub(crate) fn new(name: &str, total: u64, quiet: bool) -> Self {
        if quiet {
            return Self::Quiet;
        }
        if !std::io::stderr().is_terminal() {
            return Self::Lines { name: name.to_owned(), total, last: Instant::now() };
        }
        let mut bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(10));
        let template = "{msg} {wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar = bar.with_style(style);
        }
        Self::Bar { bar: bar.with_message(safe(name)), since: Instant::now() }
    }

    /// `done` bytes are done of `total`, where that is known by now.
    pub(crate) fn set_of(&mut self, done: u64, total: Option<u64>) {
        if let Some(total) = total {
            match self {
                Self::Quiet => {}
                Self::Bar { bar, .. } => bar.set_length(total),
                Self::Lines { total: of, .. } => *of = total,
            }
        }
        self.set(done);
    }

    /// `done` bytes are done.
    pub(crate) fn set(&mut self, done: u64) {
        match self {
            Self::Quiet => {}
            Self::Bar { since, .. } if since.elapsed() < BEFORE_BAR => {}
            Self::Bar { bar, .. } => bar.set_position(done),
            Self::Lines { name, total, last } => {
                if last.elapsed() >= BETWEEN_LINES {
                    *last = Instant::now();
                    let percent = done.saturating_mul(100).checked_div(*total).unwrap_or(100);
                    let (done, total) = (bytes(done), bytes(*total));
                    let _ = writeln!(anstream::stderr(), "{}: {done} of {total} ({percent} %)", safe(name));
                }
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Self::Bar { bar, .. } = self {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(999_999), "1.0 MB");
        assert_eq!(bytes(140_300_000_000), "140.3 GB");
        assert_eq!(count(8_030_261_248), "8.03 B");
        assert_eq!(count(291), "291");
        assert_eq!(bytes(u64::MAX), "18.4 EB");
    }

    #[test]
    fn what_a_cause_repeats_is_said_once() {
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
