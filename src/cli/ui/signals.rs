//! Signal handling: unfinished outputs are removed, and the exit status tells which signal ended the program.
//!
//! Facts: signal(7), setrlimit(2), and `SigIgn` of proc(5). A shell reports 128 plus the number of the signal that ended
//! a program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use byte_source::Observer;

/// Handles SIGXFSZ, so that a write beyond the limit for file sizes (`ulimit -f`) fails like a write on a full disk. By
/// default, the system would end the program.
#[cfg(unix)]
pub(crate) fn keep_running_at_size_limit() {
    // The flag is never read: a handler is enough. If registration fails, the default stays.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default());
}

/// Does nothing: other systems have no such limit.
#[cfg(not(unix))]
pub(crate) fn keep_running_at_size_limit() {}

/// Installs handlers for SIGHUP, SIGINT, SIGQUIT, SIGTERM and SIGXCPU that remove unfinished outputs and end the program. A
/// signal that the caller ignores, as `nohup` does, stays ignored.
#[cfg(unix)]
pub(crate) fn watch_signals() -> Result<()> {
    let mut signals = fatal_signals()?;
    spawn_watcher(move || {
        if let Some(signal) = signals.forever().next() {
            exit(signal);
        }
    })
}

/// Returns the signals that end the program, except ignored ones.
#[cfg(unix)]
fn fatal_signals() -> Result<signal_hook::iterator::Signals> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU};
    let ignored = ignored_signals();
    let watched = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU].into_iter();
    let watched = watched.filter(|signal| ignored >> (signal - 1) & 1 == 0);
    signal_hook::iterator::Signals::new(watched).context("cannot watch for signals")
}

/// Runs `watch` on its own thread.
#[cfg(unix)]
fn spawn_watcher(watch: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(watch).context("cannot watch for signals")?;
    Ok(())
}

/// Installs handlers for the signals that end the program: the first signal runs `act` with its number, the second ends the
/// program.
#[cfg(all(unix, feature = "serve"))]
pub(crate) fn on_first_signal(act: impl FnOnce(i32) + Send + 'static) -> Result<()> {
    let mut signals = fatal_signals()?;
    let watch = move || {
        let mut signals = signals.forever();
        if let Some(signal) = signals.next() {
            act(signal);
        }
        if let Some(signal) = signals.next() {
            exit(signal);
        }
    };
    spawn_watcher(watch)
}

/// Flag that Ctrl-C sets.
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

/// Installs a handler for Ctrl-C: the first sets the returned flag, so that work can end at a suitable point, the second
/// ends the program. If the caller ignores Ctrl-C, it stays ignored.
#[cfg(unix)]
pub(crate) fn watch_ctrl_c() -> Result<Interruption> {
    use signal_hook::consts::SIGINT;
    let flag = Arc::new(AtomicBool::new(false));
    if ignored_signals() >> (SIGINT - 1) & 1 == 0 {
        // This order makes the first signal find the flag unset.
        signal_hook::flag::register_conditional_shutdown(SIGINT, INTERRUPTED.into(), Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(SIGINT, Arc::clone(&flag)))
            .context("cannot watch for signals")?;
    }
    Ok(Interruption(flag))
}

/// Installs a handler for Ctrl-C that sets the returned flag.
#[cfg(not(unix))]
pub(crate) fn interruption() -> Result<Interruption> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    ctrlc::set_handler(move || set.store(true, Ordering::Relaxed)).context("cannot watch for signals")?;
    Ok(Interruption(flag))
}

/// Exit status of a program that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// Raises the soft limit on open files to the hard limit: each connection is one.
#[cfg(all(unix, feature = "serve"))]
pub(crate) fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // With a lower limit, idle connections are closed to make room.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Does nothing: other systems have no such limit.
#[cfg(all(not(unix), feature = "serve"))]
pub(crate) fn raise_file_limit() {}

/// Returns true if the caller ignores Ctrl-C for this program, as a shell without job control does for commands that end
/// with `&`.
#[cfg(all(unix, feature = "serve"))]
pub(crate) fn ignores_ctrl_c() -> bool {
    ignored_signals() >> (signal_hook::consts::SIGINT - 1) & 1 == 1
}

/// Returns false: other systems have no such setting.
#[cfg(all(not(unix), feature = "serve"))]
pub(crate) fn ignores_ctrl_c() -> bool {
    false
}

/// Returns the ignored signals as a mask whose bit 0 is signal 1. Only Linux reports them; elsewhere the mask is 0.
#[cfg(unix)]
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Installs a handler for Ctrl-C that removes unfinished outputs and ends the program.
#[cfg(not(unix))]
pub(crate) fn watch() -> Result<()> {
    /// Number of the signal for Ctrl-C on Unix.
    const SIGINT: i32 = 2;
    ctrlc::set_handler(|| exit(SIGINT)).context("cannot watch for signals")
}

/// Installs a handler for Ctrl-C: the first runs `act` with the signal's number, the second ends the program.
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
