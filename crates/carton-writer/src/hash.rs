//! SHA-256 computed on a separate thread.

use std::cell::RefCell;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::Scope;

use byte_source::{Sha256, WINDOW, Window};

/// Minimum length in bytes of a window that is sent alone. Smaller windows are collected first: sending a message for a
/// tensor of a few bytes would cost more than hashing it.
const SMALL_WINDOW: usize = WINDOW / 16;

/// Handle of the hashing thread.
pub(crate) struct Hasher {
    windows: SyncSender<Option<Window>>,
    hashes: Receiver<[u8; 32]>,
    small: RefCell<Vec<u8>>,
}

impl Hasher {
    /// Starts the thread, which ends when the hasher is dropped. Its queue holds at most `queue` windows.
    pub(crate) fn start<'scope>(scope: &'scope Scope<'scope, '_>, queue: usize) -> Self {
        let (windows, received) = sync_channel::<Option<Window>>(queue);
        let (finished, hashes) = channel();
        scope.spawn(move || {
            let mut hash = Sha256::default();
            for window in received {
                match window {
                    Some(window) => hash.update(&window),
                    None => {
                        if finished.send(std::mem::take(&mut hash).digest()).is_err() {
                            break;
                        }
                    }
                }
            }
        });
        Self { windows, hashes, small: RefCell::default() }
    }

    /// Hashes the next bytes of the current file.
    pub(crate) fn update(&self, window: Window) -> Result<(), byte_source::Error> {
        if window.len() < SMALL_WINDOW {
            let mut small = self.small.borrow_mut();
            small.extend_from_slice(&window);
            if small.len() < WINDOW {
                return Ok(());
            }
            return self.send(Some(Window::owned(std::mem::take(&mut small))));
        }
        self.flush()?;
        self.send(Some(window))
    }

    /// Returns the SHA-256 of all bytes since the last call.
    pub(crate) fn finish(&self) -> Result<[u8; 32], byte_source::Error> {
        self.flush()?;
        self.send(None)?;
        self.hashes.recv().map_err(|_| hash_thread_error())
    }

    fn flush(&self) -> Result<(), byte_source::Error> {
        let small = std::mem::take(&mut *self.small.borrow_mut());
        if small.is_empty() { Ok(()) } else { self.send(Some(Window::owned(small))) }
    }

    fn send(&self, window: Option<Window>) -> Result<(), byte_source::Error> {
        self.windows.send(window).map_err(|_| hash_thread_error())
    }
}

fn hash_thread_error() -> byte_source::Error {
    io::Error::other("the hash thread stopped").into()
}
