//! Registry of the temporary files and folders that must not outlive this process.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

static PATHS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn paths() -> MutexGuard<'static, Vec<PathBuf>> {
    PATHS.lock().unwrap_or_else(PoisonError::into_inner)
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
    OutputHalt { _paths: paths }
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
