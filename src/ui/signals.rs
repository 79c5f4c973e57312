//! Signals: what is unfinished is removed, and the exit status says which signal ended the program.
//!
//! Facts: a shell reports 128 plus the number of the signal that ended a program.

use anyhow::{Context, Result};

/// From now on, Ctrl-C, a hang-up or a request to terminate removes unfinished outputs and ends the program.
#[cfg(unix)]
pub(crate) fn watch() -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals =
        signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot watch for signals")?;
    let watch = move || {
        if let Some(signal) = signals.forever().next() {
            exit(signal);
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(watch)
        .context("cannot watch for signals")?;
    Ok(())
}

/// From now on, Ctrl-C removes unfinished outputs and ends the program.
#[cfg(not(unix))]
pub(crate) fn watch() -> Result<()> {
    /// The number that Ctrl-C has where signals have numbers.
    const SIGINT: i32 = 2;
    ctrlc::set_handler(|| exit(SIGINT)).context("cannot watch for signals")
}

#[expect(clippy::exit, reason = "a signal ends the program, whatever it is doing")]
fn exit(signal: i32) {
    let _halt = store::remove_unfinished();
    std::process::exit(signal.saturating_add(128));
}
