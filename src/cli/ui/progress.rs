//! Progress on stderr: a bar on a terminal, a line every 30 s elsewhere, nothing when quiet.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use byte_source::{Action, Observer, ProgressUpdate, format_bytes};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::terminal::escape_hidden;

const LINE_INTERVAL: Duration = Duration::from_secs(30);
/// Delay before the bar appears; shorter work shows none.
const BAR_DELAY: Duration = Duration::from_millis(300);

/// Observer that shows the progress of one command.
pub(crate) struct Progress {
    quiet: bool,
    shown: Mutex<Option<ProgressDisplay>>,
}

/// File and action shown at the moment.
struct ProgressDisplay {
    name: String,
    action: Action,
    how: DisplayMode,
}

enum DisplayMode {
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
    fn progress(&self, step: ProgressUpdate<'_>) {
        if self.quiet {
            return;
        }
        // A thread that finds the lock taken skips its update.
        let Ok(mut shown) = self.shown.try_lock() else { return };
        if shown.as_ref().is_none_or(|shown| shown.name != step.name || shown.action != step.action) {
            *shown = Some(ProgressDisplay::new(&step));
        }
        if let Some(shown) = shown.as_mut() {
            shown.advance(&step);
        }
    }
}

impl ProgressDisplay {
    fn new(step: &ProgressUpdate<'_>) -> Self {
        let how = if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(step.total, ProgressDrawTarget::stderr_with_hz(10));
            let template =
                "{msg} {wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}";
            let style = ProgressStyle::with_template(template).ok();
            let bar = style.map_or_else(|| bar.clone(), |style| bar.clone().with_style(style));
            DisplayMode::Bar { bar: bar.with_message(step_title(step)), since: Instant::now() }
        } else {
            DisplayMode::Lines { last: Instant::now() }
        };
        Self { name: step.name.to_owned(), action: step.action, how }
    }

    fn advance(&mut self, step: &ProgressUpdate<'_>) {
        match &mut self.how {
            DisplayMode::Bar { bar, since } => {
                if let Some(total) = step.total {
                    bar.set_length(total);
                }
                if since.elapsed() >= BAR_DELAY {
                    bar.set_position(step.done);
                }
            }
            DisplayMode::Lines { last } if last.elapsed() >= LINE_INTERVAL => {
                *last = Instant::now();
                let of = step.total.map_or_else(String::new, |total| {
                    let percent = (step.done * 100).checked_div(total).unwrap_or(100);
                    format!(" of {} ({percent} %)", format_bytes(total))
                });
                let _ = writeln!(anstream::stderr(), "{}: {}{of}", step_title(step), format_bytes(step.done));
            }
            DisplayMode::Lines { .. } => {}
        }
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        if let DisplayMode::Bar { bar, .. } = &self.how {
            bar.finish_and_clear();
        }
    }
}

fn step_title(step: &ProgressUpdate<'_>) -> String {
    let name = escape_hidden(step.name);
    if step.action == Action::Compress { format!("compressing {name}") } else { name }
}
