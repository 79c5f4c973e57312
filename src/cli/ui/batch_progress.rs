//! Progress of a batch on stderr, with an estimate: a bar on a terminal, a line every 30 s elsewhere, nothing when quiet.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use batch::BatchCounts;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const LINE_INTERVAL: Duration = Duration::from_secs(30);

/// Progress that is shown while a batch runs.
pub(crate) struct BatchProgress {
    /// Number of inputs, if it is known.
    total: Option<u64>,
    start: Instant,
    display: BatchDisplay,
}

enum BatchDisplay {
    Quiet,
    Bar(ProgressBar),
    Lines { last: Cell<Instant> },
}

impl BatchProgress {
    pub(crate) fn new(quiet: bool, total: Option<u64>) -> Self {
        let start = Instant::now();
        let display = if quiet {
            BatchDisplay::Quiet
        } else if io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(10));
            let style = ProgressStyle::with_template("{wide_bar} {msg}").ok();
            BatchDisplay::Bar(style.map_or_else(|| bar.clone(), |style| bar.clone().with_style(style)))
        } else {
            BatchDisplay::Lines { last: Cell::new(start) }
        };
        Self { total, start, display }
    }

    /// Calls `print` while no bar is on the terminal.
    pub(crate) fn clear_before<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.display {
            BatchDisplay::Bar(bar) => bar.suspend(print),
            _ => print(),
        }
    }

    /// Shows the counts, and how long the rest takes.
    pub(crate) fn show(&self, counts: &BatchCounts) {
        match &self.display {
            BatchDisplay::Bar(bar) => {
                bar.set_position(counts.all());
                bar.set_message(progress_text(counts, self.total, self.start.elapsed()));
            }
            BatchDisplay::Lines { last } if last.get().elapsed() >= LINE_INTERVAL => {
                last.set(Instant::now());
                let text = progress_text(counts, self.total, self.start.elapsed());
                let _ = writeln!(anstream::stderr(), "{text}");
            }
            BatchDisplay::Lines { .. } | BatchDisplay::Quiet => {}
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        if let BatchDisplay::Bar(bar) = &self.display {
            bar.finish_and_clear();
        }
    }
}

/// Returns the counts with the time that the rest takes at the speed so far. Results of an earlier batch take no time.
#[expect(clippy::cast_precision_loss, reason = "it is an estimate")]
fn progress_text(counts: &BatchCounts, total: Option<u64>, elapsed: Duration) -> String {
    let done = counts.all();
    let speed = done.saturating_sub(counts.kept) as f64 / elapsed.as_secs_f64().max(1e-9);
    let failed = if counts.failed > 0 { format!(", {} failed", counts.failed) } else { String::new() };
    let Some(total) = total else {
        return format!("{done} done{failed}, {speed:.1} a second");
    };
    let rest = total.saturating_sub(done);
    let left =
        if speed > 0.0 { Duration::try_from_secs_f64((rest as f64 / speed).round()).ok() } else { None };
    let left =
        left.map_or_else(String::new, |left| format!(", about {} left", humantime::format_duration(left)));
    let percent = (u128::from(done) * 100).checked_div(u128::from(total)).unwrap_or(100);
    format!("{done} of {total} ({percent} %){failed}, {speed:.1} a second{left}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_estimated_from_the_speed_so_far() {
        let text = |ok, failed, kept, total| {
            let mut counts = BatchCounts::default();
            (counts.ok, counts.failed, counts.kept) = (ok, failed, kept);
            progress_text(&counts, total, Duration::from_secs(10))
        };
        assert_eq!(
            text(1990, 10, 0, Some(10_000)),
            "2000 of 10000 (20 %), 10 failed, 200.0 a second, about 40s left"
        );
        assert_eq!(text(500, 0, 400, Some(1000)), "500 of 1000 (50 %), 10.0 a second, about 50s left");
        assert_eq!(text(5, 0, 5, Some(10)), "5 of 10 (50 %), 0.0 a second");
        assert_eq!(text(25, 0, 0, None), "25 done, 2.5 a second");
        assert_eq!(text(0, 0, 0, Some(0)), "0 of 0 (100 %), 0.0 a second");
    }
}
