//! An output file that is whole or not there: written beside the target, synced, renamed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, anyhow, bail};
use sources::location::folder;
use tempfile::{Builder, NamedTempFile, TempDir};

use crate::terminal::bytes;

/// The files and folders that a signal's arrival removes.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
/// What a shell reports for a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// Refuses a target that must not be written: a folder, a device, one of `inputs` by whatever path or
/// link, or, with `no_clobber`, any file that is there.
pub(crate) fn check(target: &Path, inputs: &[&Path], no_clobber: bool) -> Result<()> {
    let shown = target.display();
    let parent = folder(target);
    if !parent.is_dir() {
        bail!("cannot write {shown}: there is no folder {}", parent.display());
    }
    let Ok(kind) = target.metadata() else { return Ok(()) };
    if kind.is_dir() {
        bail!("cannot write {shown}: it is a folder; name a file in it");
    }
    for input in inputs {
        if same_file::is_same_file(target, input).unwrap_or(false) {
            bail!("the output {shown} is the input {}; choose another path with -o", input.display());
        }
    }
    if !kind.is_file() {
        bail!("cannot write {shown}: it is a pipe or a device, and a carton is a file");
    }
    if no_clobber {
        bail!("{shown} exists; leave out --no-clobber to replace it, or choose another path with -o");
    }
    Ok(())
}

/// An output on its way. Dropped before [`commit`](Self::commit), it leaves nothing behind; so does a
/// signal. After `kill -9` a file `.torch2carton-*.partial` remains.
pub(crate) struct Output<'t> {
    file: NamedTempFile,
    target: &'t Path,
    /// Bytes that were written, and how many of them are on their way to the disk.
    written: u64,
    started: u64,
}

impl<'t> Output<'t> {
    /// Makes the temporary file beside `target`, where there is room for `needed` bytes.
    pub(crate) fn create(target: &'t Path, needed: u64) -> Result<Self> {
        let parent = folder(target);
        ask_for(needed, parent)?;
        remove_on_signal()?;
        let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
        let file = permitted(Builder::new().prefix(".torch2carton-").suffix(".partial"))
            .tempfile_in(parent)
            .map_err(|error| unwritable(parent, &error))?;
        unfinished.push(file.path().to_owned());
        Ok(Self { file, target, written: 0, started: 0 })
    }

    /// Puts the whole file in the target's place, on the disk and not only in memory.
    pub(crate) fn commit(self, no_clobber: bool) -> Result<()> {
        let target = self.target;
        self.file.as_file().sync_all().with_context(|| format!("cannot write {}", target.display()))?;
        self.put(no_clobber)?;
        // The rename itself; a filesystem that cannot sync folders keeps it anyway.
        if let Ok(parent) = std::fs::File::open(folder(target)) {
            let _ = parent.sync_all();
        }
        Ok(())
    }

    /// The same for one of many files, which [`sync`] brings to the disk together: one by one they would
    /// take a hundred times as long.
    pub(crate) fn put(self, no_clobber: bool) -> Result<()> {
        let temporary = self.file.path().to_owned();
        let persisted = if no_clobber {
            self.file.persist_noclobber(self.target)
        } else {
            self.file.persist(self.target)
        };
        persisted
            .map_err(|error| error.error)
            .with_context(|| format!("cannot write {}", self.target.display()))?;
        finished(&temporary);
        Ok(())
    }
}

/// Brings all that was put into `folder` to the disk.
#[cfg(target_os = "linux")]
pub(crate) fn sync(folder: &Path) -> Result<()> {
    let shown = || format!("cannot write into {}", folder.display());
    rustix::fs::syncfs(std::fs::File::open(folder).with_context(shown)?).with_context(shown)
}

/// Elsewhere the system does that in its own time.
#[cfg(not(target_os = "linux"))]
pub(crate) fn sync(_: &Path) -> Result<()> {
    Ok(())
}

/// The disk begins with the first bytes, not when all are there and the sync waits for them.
impl io::Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        /// Bytes after which the disk is given more to do.
        const AHEAD: u64 = 32 << 20;
        let count = self.file.as_file_mut().write(bytes)?;
        self.written = self.written.saturating_add(count as u64);
        let waiting = self.written.saturating_sub(self.started);
        if waiting >= AHEAD {
            start_writing(self.file.as_file(), self.started, waiting);
            self.started = self.written;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_file_mut().flush()
    }
}

/// Lets the disk begin to write a part of a file, without waiting for it: that is how Linux takes the advice
/// that the pages are not needed any more.
#[cfg(target_os = "linux")]
fn start_writing(file: &std::fs::File, offset: u64, len: u64) {
    use rustix::fs::{Advice, fadvise};
    // A filesystem that takes no advice writes when it is asked to sync.
    let _ = fadvise(file, offset, std::num::NonZeroU64::new(len), Advice::DontNeed);
}

#[cfg(not(target_os = "linux"))]
fn start_writing(_: &std::fs::File, _: u64, _: u64) {}

/// A folder for files on their way, which goes away with this, on an error or a signal.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    /// Makes it in `parent`.
    pub(crate) fn create(parent: &Path) -> Result<Self> {
        remove_on_signal()?;
        let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = Builder::new()
            .prefix(".torch2carton-")
            .tempdir_in(parent)
            .map_err(|error| unwritable(parent, &error))?;
        unfinished.push(folder.path().to_owned());
        Ok(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        finished(self.0.path());
    }
}

/// Why nothing can be made in a folder, without the name of what could not be made.
fn unwritable(folder: &Path, error: &io::Error) -> anyhow::Error {
    let why = io::Error::from(error.kind());
    anyhow!("cannot write into {}: {why}; choose another place with -o", folder.display())
}

/// A signal need not remove this any more.
fn finished(path: &Path) {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).retain(|unfinished| unfinished != path);
}

/// Refuses to begin what there is no room for.
pub(crate) fn ask_for(needed: u64, folder: &Path) -> Result<()> {
    let free = free(folder)?;
    if needed > free {
        bail!("needs {} in {}, {} free", bytes(needed), folder.display(), bytes(free));
    }
    Ok(())
}

/// Bytes that are free in a folder.
pub(crate) fn free(folder: &Path) -> Result<u64> {
    room(folder).with_context(|| format!("cannot ask for the free space in {}", folder.display()))
}

/// The permissions that the user's umask leaves, as for any file; temporary files are private otherwise.
#[cfg(unix)]
fn permitted<'b, 'p, 's>(builder: &'b mut Builder<'p, 's>) -> &'b mut Builder<'p, 's> {
    use std::os::unix::fs::PermissionsExt;
    builder.permissions(std::fs::Permissions::from_mode(0o666))
}

#[cfg(not(unix))]
fn permitted<'b, 'p, 's>(builder: &'b mut Builder<'p, 's>) -> &'b mut Builder<'p, 's> {
    builder
}

#[cfg(unix)]
fn room(folder: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(folder)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Elsewhere the write itself says when there is no room.
#[cfg(not(unix))]
fn room(_: &Path) -> io::Result<u64> {
    Ok(u64::MAX)
}

/// On Ctrl-C, a hang-up or a request to end: removes what is unfinished and ends.
#[expect(clippy::exit, reason = "a signal ends the program, whatever it was doing")]
fn remove_on_signal() -> Result<()> {
    let handler = || {
        let unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
        for path in &*unfinished {
            // Nothing is there when the rename came first.
            let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        }
        std::process::exit(INTERRUPTED);
    };
    match ctrlc::set_handler(handler) {
        // A second output in one run has its handler already.
        Ok(()) | Err(ctrlc::Error::MultipleHandlers) => Ok(()),
        Err(error) => Err(error).context("cannot watch for signals"),
    }
}
