//! Signals of Unix.
//!
//! Facts: signal(7), setrlimit(2), and `SigIgn` of proc(5).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
#[cfg(feature = "tokenizer")]
use std::sync::atomic::Ordering;
use std::thread;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU, SIGXFSZ};
use signal_hook::iterator::Signals;

use super::{INTERRUPTED, Interruption, exit};

/// Handles SIGXFSZ, so that a write beyond the limit for file sizes (`ulimit -f`) fails like a write on a full disk. By
/// default, the system would end the program.
pub(crate) fn keep_running_at_size_limit() {
    // The flag is never read: a handler is enough. If registration fails, the default stays.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// Installs handlers for SIGHUP, SIGINT, SIGQUIT, SIGTERM and SIGXCPU that remove unfinished outputs and end the program. A
/// signal that the caller ignores, as `nohup` does, stays ignored.
pub(crate) fn watch_signals() -> Result<()> {
    let mut signals = fatal_signals()?;
    spawn_watcher(move || {
        if let Some(signal) = signals.forever().next() {
            exit(signal);
        }
    })
}

/// Installs handlers for the signals that end the program: the first signal runs `act` with its number, the second ends the
/// program.
#[cfg(feature = "serve")]
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

/// Installs a handler for Ctrl-C: the first sets the returned flag, so that work can end at a suitable point, the second
/// ends the program. If the caller ignores Ctrl-C, it stays ignored.
pub(crate) fn watch_ctrl_c() -> Result<Interruption> {
    let flag = Arc::new(AtomicBool::new(false));
    if !ignores_ctrl_c() {
        // This order makes the first signal find the flag unset.
        signal_hook::flag::register_conditional_shutdown(SIGINT, INTERRUPTED.into(), Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(SIGINT, Arc::clone(&flag)))
            .context("cannot watch for signals")?;
    }
    Ok(Interruption(flag))
}

/// Installs a handler for Ctrl-C that sets the returned flag and runs `act`, each time. If the caller ignores Ctrl-C, it stays ignored.
#[cfg(feature = "tokenizer")]
pub(crate) fn catch_ctrl_c(act: impl Fn() + Send + 'static) -> Result<Interruption> {
    let flag = Arc::new(AtomicBool::new(false));
    if !ignores_ctrl_c() {
        let set = Arc::clone(&flag);
        let mut signals = Signals::new([SIGINT]).context("cannot watch for signals")?;
        spawn_watcher(move || {
            for _ in signals.forever() {
                set.store(true, Ordering::Relaxed);
                act();
            }
        })?;
    }
    Ok(Interruption(flag))
}

/// Raises the soft limit on open files to the hard limit: each connection is one.
#[cfg(feature = "serve")]
pub(crate) fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // With a lower limit, idle connections are closed to make room.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Returns true if the caller ignores Ctrl-C for this program, as a shell without job control does for commands that end
/// with `&`.
pub(crate) fn ignores_ctrl_c() -> bool {
    is_ignored(SIGINT, ignored_signals())
}

/// Returns the signals that end the program, except ignored ones.
fn fatal_signals() -> Result<Signals> {
    let ignored = ignored_signals();
    let watched = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU].into_iter();
    let watched = watched.filter(|&signal| !is_ignored(signal, ignored));
    Signals::new(watched).context("cannot watch for signals")
}

/// Runs `watch` on its own thread.
fn spawn_watcher(watch: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = thread::Builder::new().name("signals".to_owned());
    thread.spawn(watch).context("cannot watch for signals")?;
    Ok(())
}

fn is_ignored(signal: i32, ignored: u64) -> bool {
    ignored >> (signal - 1) & 1 == 1
}

/// Returns the ignored signals as a mask whose bit 0 is signal 1. Only Linux reports them; elsewhere the mask is 0.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
