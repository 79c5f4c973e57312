//! Ctrl-C, Ctrl-Break and the end of the console or of the session, as Windows reports them: all count as SIGINT.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

use super::{INTERRUPTED, Interruption, exit};

/// Number of the signal for Ctrl-C on Unix.
const SIGINT: i32 = INTERRUPTED as i32 - 128;

/// Does nothing: there is no such limit.
pub(crate) fn keep_running_at_size_limit() {}

/// Installs a handler for Ctrl-C that removes unfinished outputs and ends the program.
pub(crate) fn watch_signals() -> Result<()> {
    ctrlc::set_handler(|| exit(SIGINT)).context("cannot watch for Ctrl-C")
}

/// Installs a handler for Ctrl-C: the first runs `act` with the signal's number, the second ends the program.
#[cfg(feature = "serve")]
pub(crate) fn on_first_signal(act: impl FnOnce(i32) + Send + 'static) -> Result<()> {
    let mut act = Some(act);
    let handler = move || match act.take() {
        Some(act) => act(SIGINT),
        None => exit(SIGINT),
    };
    ctrlc::set_handler(handler).context("cannot watch for Ctrl-C")
}

/// Installs a handler for Ctrl-C: the first sets the returned flag, so that work can end at a suitable point, the second ends the
/// program.
pub(crate) fn watch_ctrl_c() -> Result<Interruption> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    let handler = move || {
        if set.swap(true, Ordering::Relaxed) {
            exit(SIGINT);
        }
    };
    ctrlc::set_handler(handler).context("cannot watch for Ctrl-C")?;
    Ok(Interruption(flag))
}

/// Installs a handler for Ctrl-C that sets the returned flag and runs `act`, each time.
#[cfg(feature = "tokenizer")]
pub(crate) fn catch_ctrl_c(act: impl Fn() + Send + 'static) -> Result<Interruption> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    let handler = move || {
        set.store(true, Ordering::Relaxed);
        act();
    };
    ctrlc::set_handler(handler).context("cannot watch for Ctrl-C")?;
    Ok(Interruption(flag))
}

/// Does nothing: there is no such limit.
#[cfg(feature = "serve")]
pub(crate) fn raise_file_limit() {}

/// Returns false: no caller can have it ignored.
#[cfg(feature = "serve")]
pub(crate) fn ignores_ctrl_c() -> bool {
    false
}
