//! The temporary files and folders of this process that must not survive it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

static PATHS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn paths() -> MutexGuard<'static, Vec<PathBuf>> {
    PATHS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes every unfinished [`Output`](crate::Output) and [`Scratch`](crate::Scratch) of this process: what a
/// program does before a signal ends it.
///
/// While the returned value lives, no output can be created, so hold it until the process exits. Outputs that were
/// unfinished cannot be committed afterwards.
pub fn remove_unfinished() -> Halt {
    let paths = paths();
    for path in &*paths {
        // Already renamed or removed: nothing is left to do.
        let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    }
    Halt { _paths: paths }
}

/// Keeps outputs from being created. Returned by [`remove_unfinished`].
#[must_use = "outputs can be created again once this is dropped"]
#[derive(Debug)]
pub struct Halt {
    _paths: MutexGuard<'static, Vec<PathBuf>>,
}

/// A path that [`remove_unfinished`] removes until this is dropped.
#[derive(Debug)]
pub(crate) struct Unfinished(PathBuf);

impl Unfinished {
    /// Creates something temporary and registers its path. Both happen under one lock: a signal between them
    /// would leave the file behind.
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

impl Drop for Unfinished {
    fn drop(&mut self) {
        paths().retain(|path| *path != self.0);
    }
}
