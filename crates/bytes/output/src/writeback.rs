//! Writeback of a file while it is written.
//!
//! Facts: `posix_fadvise(2)` as Linux implements it.

use std::fs::File;
use std::ops::Range;
use std::sync::mpsc::{self, Sender};
use std::thread;

/// Writeback of a file, which starts every 32 MiB, so that the sync at the end does not wait for most of the file. A thread of
/// its own starts it, because that takes a tenth as long as writing.
#[derive(Debug, Default)]
pub(crate) struct Writeback {
    /// Bytes whose writeback was already asked for.
    started: u64,
    ranges: Option<Sender<Range<u64>>>,
}

impl Writeback {
    /// Bytes after which the writeback of new bytes is started.
    const CHUNK: u64 = 32 << 20;

    /// Starts the writeback of new bytes, once there are enough of them.
    pub(crate) fn advance(&mut self, file: &File, written: u64) {
        let range = self.started..written;
        if range.end.saturating_sub(range.start) < Self::CHUNK {
            return;
        }
        self.started = written;
        if self.ranges.is_none() {
            self.ranges = Self::start_thread(file);
        }
        if let Some(ranges) = &self.ranges {
            // Without the thread, the bytes are written on sync.
            let _ = ranges.send(range);
        }
    }

    /// Starts a thread that ends when the sender is dropped; `None` if the system refuses it.
    fn start_thread(file: &File) -> Option<Sender<Range<u64>>> {
        let (sender, ranges) = mpsc::channel();
        let file = file.try_clone().ok()?;
        let work = move || ranges.iter().for_each(|range| start_writing(&file, range));
        thread::Builder::new().name("writeback".to_owned()).spawn(work).ok()?;
        Some(sender)
    }
}

/// Starts the writeback of a range of a file without waiting for it: Linux does so on the advice that the pages are no
/// longer needed.
#[cfg(target_os = "linux")]
fn start_writing(file: &File, range: Range<u64>) {
    use rustix::fs::{Advice, fadvise};
    let len = std::num::NonZeroU64::new(range.end.saturating_sub(range.start));
    // A filesystem that ignores the advice writes the bytes on sync.
    let _ = fadvise(file, range.start, len, Advice::DontNeed);
}

#[cfg(not(target_os = "linux"))]
fn start_writing(_: &File, _: Range<u64>) {}
