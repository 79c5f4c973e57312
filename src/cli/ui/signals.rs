//! Signals: what is unfinished is removed, and the exit status says which signal ended the program.
//!
//! Facts: signal(7), setrlimit(2), and `SigIgn` of proc(5). A shell reports 128 plus the number of the signal that ended
//! a program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use pipeline::Observer;

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
    let mut signals = signals()?;
    start(move || {
        if let Some(signal) = signals.forever().next() {
            exit(signal);
        }
    })
}

/// The signals that end the program, without those that are ignored.
#[cfg(unix)]
fn signals() -> Result<signal_hook::iterator::Signals> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU};
    let ignored = ignored();
    let watched = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU].into_iter();
    let watched = watched.filter(|signal| ignored >> (signal - 1) & 1 == 0);
    signal_hook::iterator::Signals::new(watched).context("cannot watch for signals")
}

/// Runs `watch` on a thread of its own.
#[cfg(unix)]
fn start(watch: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(watch).context("cannot watch for signals")?;
    Ok(())
}

/// From now on, the first signal that would end the program runs `act` with its number, and the second one ends it.
#[cfg(all(unix, feature = "serve"))]
pub(crate) fn on_first(act: impl FnOnce(i32) + Send + 'static) -> Result<()> {
    let mut signals = signals()?;
    let watch = move || {
        let mut signals = signals.forever();
        if let Some(signal) = signals.next() {
            act(signal);
        }
        if let Some(signal) = signals.next() {
            exit(signal);
        }
    };
    start(watch)
}

/// Whether Ctrl-C was pressed.
pub(crate) struct Interruption(Arc<AtomicBool>);

impl Interruption {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Observer for Interruption {
    fn is_cancelled(&self) -> bool {
        self.is_set()
    }
}

/// From now on, the first Ctrl-C sets what is returned, so that work can end where it makes sense. The second ends the
/// program. If the caller ignores Ctrl-C, it stays ignored.
#[cfg(unix)]
pub(crate) fn interruption() -> Result<Interruption> {
    use signal_hook::consts::SIGINT;
    let flag = Arc::new(AtomicBool::new(false));
    if ignored() >> (SIGINT - 1) & 1 == 0 {
        // In this order: the first signal finds the flag unset.
        signal_hook::flag::register_conditional_shutdown(SIGINT, INTERRUPTED.into(), Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(SIGINT, Arc::clone(&flag)))
            .context("cannot watch for signals")?;
    }
    Ok(Interruption(flag))
}

/// From now on, Ctrl-C sets what is returned.
#[cfg(not(unix))]
pub(crate) fn interruption() -> Result<Interruption> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    ctrlc::set_handler(move || set.store(true, Ordering::Relaxed)).context("cannot watch for signals")?;
    Ok(Interruption(flag))
}

/// The exit status of a program that ended because of Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;

/// Allows as many open files as the system lets this program have: each connection is one.
#[cfg(all(unix, feature = "serve"))]
pub(crate) fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // With less, idle connections are closed to make room.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Other systems have no such limit.
#[cfg(all(not(unix), feature = "serve"))]
pub(crate) fn raise_file_limit() {}

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

/// From now on, the first Ctrl-C runs `act` with its number, and the second one ends the program.
#[cfg(all(not(unix), feature = "serve"))]
pub(crate) fn on_first(act: impl FnOnce(i32) + Send + 'static) -> Result<()> {
    const SIGINT: i32 = 2;
    let mut act = Some(act);
    let handler = move || match act.take() {
        Some(act) => act(SIGINT),
        None => exit(SIGINT),
    };
    ctrlc::set_handler(handler).context("cannot watch for signals")
}

#[expect(clippy::exit, reason = "a signal ends the program, whatever it is doing")]
fn exit(signal: i32) {
    let _halt = output::remove_unfinished();
    std::process::exit(signal + 128);
}
