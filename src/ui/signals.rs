//! Signals: what is unfinished is removed, and the exit status says which signal ended the program.
//!
//! Facts: signal(7), setrlimit(2), and `SigIgn` of proc(5). A shell reports 128 plus the number of the signal that ended
//! a program.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
#[cfg(not(unix))]
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};

/// From now on, a write beyond the limit for the size of files (`ulimit -f`) fails, as it does on a full disk. Without
/// this, the system ends the program there.
#[cfg(unix)]
pub(crate) fn keep_running_at_size_limit() {
    // Nobody looks at the flag: it is enough that the signal has a handler. Without one, nothing is worse than before.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default());
}

/// Other systems have no such limit.
#[cfg(not(unix))]
pub(crate) fn keep_running_at_size_limit() {}

/// From now on, Ctrl-C, a hang-up, a request to terminate or the end of the allowed time removes unfinished outputs and
/// ends the program. A signal that the caller ignores, as `nohup` does, stays ignored.
#[cfg(unix)]
pub(crate) fn watch() -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU};
    let ignored = ignored();
    let watched = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU].into_iter();
    let watched = watched.filter(|signal| ignored >> signal.saturating_sub(1) & 1 == 0);
    let mut signals = signal_hook::iterator::Signals::new(watched).context("cannot watch for signals")?;
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

/// From now on, the first Ctrl-C sets the flag that is returned, so that work can end where it makes sense. The second ends
/// the program. If the caller ignores Ctrl-C, it stays ignored.
#[cfg(unix)]
pub(crate) fn interruption() -> Result<Arc<AtomicBool>> {
    use signal_hook::consts::SIGINT;
    let flag = Arc::new(AtomicBool::new(false));
    if ignored() >> SIGINT.saturating_sub(1) & 1 == 0 {
        // In this order: the first signal finds the flag unset.
        signal_hook::flag::register_conditional_shutdown(SIGINT, INTERRUPTED.into(), Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(SIGINT, Arc::clone(&flag)))
            .context("cannot watch for signals")?;
    }
    Ok(flag)
}

/// From now on, Ctrl-C sets the flag that is returned.
#[cfg(not(unix))]
pub(crate) fn interruption() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    ctrlc::set_handler(move || set.store(true, Ordering::Relaxed)).context("cannot watch for signals")?;
    Ok(flag)
}

/// The exit status of a program that ended because of Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;

/// The signals that are ignored, a bit each, the first one for signal 1. Only Linux says so.
#[cfg(unix)]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
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
