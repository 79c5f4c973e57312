//! Signal handling: unfinished outputs are removed, and the exit status tells which signal ended the program.
//!
//! A shell reports 128 plus the number of the signal that ended a program. Each system has a file of its own here, with the same
//! functions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use byte_source::Observer;

#[cfg(unix)]
mod unix;
#[cfg(not(unix))]
mod windows;

#[cfg(unix)]
use self::unix as system;
#[cfg(not(unix))]
use self::windows as system;

#[cfg(feature = "tokenizer")]
pub(crate) use self::system::catch_ctrl_c;
#[cfg(feature = "serve")]
pub(crate) use self::system::{ignores_ctrl_c, on_first_signal, raise_file_limit};
pub(crate) use self::system::{keep_running_at_size_limit, watch_ctrl_c, watch_signals};

/// Exit status of a program that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// Flag that Ctrl-C sets.
pub(crate) struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// Forgets that Ctrl-C was pressed.
    #[cfg(feature = "tokenizer")]
    pub(crate) fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Observer for Interruption {
    fn is_cancelled(&self) -> bool {
        self.is_set()
    }
}

#[expect(clippy::exit, reason = "a signal ends the program, whatever it is doing")]
fn exit(signal: i32) {
    let _halt = output::remove_unfinished();
    std::process::exit(signal + 128);
}
