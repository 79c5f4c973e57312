//! Progress on stderr: a bar on a terminal, a line every 30 s elsewhere, nothing when quiet.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pipeline::{Action, Observer, Step, size};

use super::terminal::safe;

const BETWEEN_LINES: Duration = Duration::from_secs(30);
/// Delay before the bar appears; shorter work shows none.
const BEFORE_BAR: Duration = Duration::from_millis(300);

/// Observer that shows the progress of one command.
pub(crate) struct Progress {
    quiet: bool,
    shown: Mutex<Option<Shown>>,
}

/// File and action shown at the moment.
struct Shown {
    name: String,
    action: Action,
    how: How,
}

enum How {
    Bar { bar: ProgressBar, since: Instant },
    Lines { last: Instant },
}

impl Progress {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet, shown: Mutex::new(None) }
    }

    /// Removes the bar, so that other lines can be printed.
    pub(crate) fn clear(&self) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Observer for Progress {
    fn progress(&self, step: Step<'_>) {
        if self.quiet {
            return;
        }
        // A thread that finds the lock taken skips its update.
        let Ok(mut shown) = self.shown.try_lock() else { return };
        if shown.as_ref().is_none_or(|shown| shown.name != step.name || shown.action != step.action) {
            *shown = Some(Shown::new(&step));
        }
        if let Some(shown) = shown.as_mut() {
            shown.advance(&step);
        }
    }
}

impl Shown {
    fn new(step: &Step<'_>) -> Self {
        let how = if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(step.total, ProgressDrawTarget::stderr_with_hz(10));
            let template =
                "{msg} {wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}";
            let style = ProgressStyle::with_template(template).ok();
            let bar = style.map_or_else(|| bar.clone(), |style| bar.clone().with_style(style));
            How::Bar { bar: bar.with_message(title(step)), since: Instant::now() }
        } else {
            How::Lines { last: Instant::now() }
        };
        Self { name: step.name.to_owned(), action: step.action, how }
    }

    fn advance(&mut self, step: &Step<'_>) {
        match &mut self.how {
            How::Bar { bar, since } => {
                if let Some(total) = step.total {
                    bar.set_length(total);
                }
                if since.elapsed() >= BEFORE_BAR {
                    bar.set_position(step.done);
                }
            }
            How::Lines { last } if last.elapsed() >= BETWEEN_LINES => {
                *last = Instant::now();
                let of = step.total.map_or_else(String::new, |total| {
                    let percent = (step.done * 100).checked_div(total).unwrap_or(100);
                    format!(" of {} ({percent} %)", size(total))
                });
                let _ = writeln!(anstream::stderr(), "{}: {}{of}", title(step), size(step.done));
            }
            How::Lines { .. } => {}
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let How::Bar { bar, .. } = &self.how {
            bar.finish_and_clear();
        }
    }
}

fn title(step: &Step<'_>) -> String {
    let name = safe(step.name);
    if step.action == Action::Compress { format!("compressing {name}") } else { name }
}
