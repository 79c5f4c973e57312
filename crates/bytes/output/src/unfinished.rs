//! Registry of the temporary files and folders, and of the uploads, that must not outlive this process.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest time for aborting uploads when the process ends.
const ABORT_TIME: Duration = Duration::from_millis(800);

static PATHS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static UPLOADS: Mutex<Vec<(u64, Abort)>> = Mutex::new(Vec::new());

/// Function that aborts an upload.
type Abort = Arc<dyn Fn() + Send + Sync>;

fn paths() -> MutexGuard<'static, Vec<PathBuf>> {
    PATHS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the paths of all temporary files and folders of this process.
#[cfg(target_os = "linux")]
pub(crate) fn unfinished_paths() -> Vec<PathBuf> {
    paths().clone()
}

/// Removes every unfinished [`OutputFile`](crate::OutputFile) and [`Scratch`](crate::Scratch) of this process, for a program
/// that is about to end on a signal.
///
/// No output can be created while the returned [`OutputHalt`] lives, so hold it until the process exits. Unfinished outputs
/// cannot be committed afterwards.
pub fn remove_unfinished() -> OutputHalt {
    let paths = paths();
    for path in &*paths {
        // The path may already be renamed or removed.
        let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    }
    abort_uploads();
    OutputHalt { _paths: paths }
}

/// Aborts all uploads at the same time, and waits for it, but not for long: a service may not answer.
fn abort_uploads() {
    let uploads = std::mem::take(&mut *UPLOADS.lock().unwrap_or_else(PoisonError::into_inner));
    let (ended, received) = channel();
    let count = uploads.len();
    for (_, abort) in uploads {
        let ended = ended.clone();
        let abort = move || {
            abort();
            let _ = ended.send(());
        };
        // Without a thread, the service removes the parts in its own time.
        let _ = std::thread::Builder::new().name("abort".to_owned()).spawn(abort);
    }
    let deadline = Instant::now().checked_add(ABORT_TIME);
    for _ in 0..count {
        let left = deadline.map_or(ABORT_TIME, |end| end.saturating_duration_since(Instant::now()));
        if received.recv_timeout(left).is_err() {
            break;
        }
    }
}

/// Registration of an upload that [`remove_unfinished`] aborts, until this value is dropped.
#[derive(Debug)]
pub(crate) struct RegisteredUpload(u64);

impl RegisteredUpload {
    pub(crate) fn register(abort: Abort) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        UPLOADS.lock().unwrap_or_else(PoisonError::into_inner).push((id, abort));
        Self(id)
    }
}

impl Drop for RegisteredUpload {
    fn drop(&mut self) {
        UPLOADS.lock().unwrap_or_else(PoisonError::into_inner).retain(|(id, _)| *id != self.0);
    }
}

/// Guard that keeps outputs from being created; returned by [`remove_unfinished`].
#[must_use = "outputs can be created again once this is dropped"]
#[derive(Debug)]
pub struct OutputHalt {
    _paths: MutexGuard<'static, Vec<PathBuf>>,
}

/// Registration of a path that [`remove_unfinished`] removes, until this value is dropped.
#[derive(Debug)]
pub(crate) struct RegisteredPath(PathBuf);

impl RegisteredPath {
    /// Creates a temporary file or folder and registers its path. Both happen under one lock, because a signal between
    /// them would leave the file behind.
    pub(crate) fn register<T>(
        create: impl FnOnce() -> io::Result<T>,
        path: impl FnOnce(&T) -> &Path,
    ) -> io::Result<(T, Self)> {
        let mut paths = paths();
        let created = create()?;
        let path = path(&created).to_owned();
        paths.push(path.clone());
        Ok((created, Self(path)))
    }
}

impl Drop for RegisteredPath {
    fn drop(&mut self) {
        paths().retain(|path| *path != self.0);
    }
}
