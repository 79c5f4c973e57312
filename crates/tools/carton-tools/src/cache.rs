//! Caches downloads in files named by their SHA-256, and resumes partial downloads of earlier runs.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use byte_source::{Action, FileError, LazyFile, Observer, ProgressReporter, ProgressUpdate, hex, sha256};
use output::Scratch;
use remote_source::{Downloader, RemoteOptions, WantedFile};
use tempfile::TempPath;

use crate::error::at;
use crate::{Error, Problem, ResolveOptions, Result};

/// Folder for downloads, permanent or temporary.
pub(crate) struct DownloadCache<'o> {
    options: &'o ResolveOptions,
    observer: &'o dyn Observer,
    place: CacheFolder,
    downloader: Downloader,
}

enum CacheFolder {
    /// Cache folder that outlives the run.
    Permanent(PathBuf),
    /// Folder next to the output, removed when dropped.
    Temporary(Scratch),
}

/// File that the carton leaves out, with its hash and URLs.
pub(crate) struct AbsentFile<'w> {
    /// Path of the file in the carton.
    pub(crate) entry: &'w str,
    pub(crate) sha256: [u8; 32],
    /// URLs to try, in this order.
    pub(crate) urls: &'w [String],
}

/// File in the cache, with the cost of fetching it.
pub(crate) struct FetchedFile {
    pub(crate) file: LazyFile,
    /// Number of bytes downloaded for the file.
    pub(crate) downloaded: u64,
    /// Damaged file that this download replaced.
    pub(crate) replaced: Option<PathBuf>,
}

impl<'o> DownloadCache<'o> {
    pub(crate) fn open(options: &'o ResolveOptions, observer: &'o dyn Observer) -> Result<Self> {
        let place = if let Some(folder) = &options.cache {
            std::fs::create_dir_all(folder)
                .map_err(|reason| FileError::Create { path: folder.clone(), reason })?;
            CacheFolder::Permanent(folder.clone())
        } else {
            CacheFolder::Temporary(Scratch::create(output::parent_folder(&options.output))?)
        };
        let mut remote = RemoteOptions::default();
        remote.allow_http = options.allow_http;
        remote.timeout = options.timeout;
        let downloader = Downloader::new(&remote).map_err(Error::from)?;
        Ok(Self { options, observer, place, downloader })
    }

    fn folder(&self) -> &Path {
        match &self.place {
            CacheFolder::Permanent(folder) => folder,
            CacheFolder::Temporary(scratch) => scratch.path(),
        }
    }

    /// Returns the file with the wanted hash, and downloads it if it is absent or damaged.
    pub(crate) fn fetch(&self, wanted: &AbsentFile<'_>) -> Result<FetchedFile> {
        let target = self.folder().join(hex(&wanted.sha256));
        let mut replaced = None;
        if target.is_file() {
            let file = LazyFile::find(&target)?;
            if sha256(&file, self.observer)? == wanted.sha256 {
                return Ok(FetchedFile { file, downloaded: 0, replaced });
            }
            replaced = Some(target.clone());
        }
        let mut partial = PartialFile::open(self.folder(), &hex(&wanted.sha256))?;
        match self.download(wanted, &mut partial) {
            Ok(downloaded) => {
                partial.complete(&target, replaced.is_some())?;
                let file = LazyFile::find(&target)?;
                Ok(FetchedFile { file, downloaded, replaced })
            }
            Err(error) => {
                partial.remove_if_useless();
                Err(error)
            }
        }
    }

    /// Tries the URLs in turn, and returns the number of bytes downloaded.
    fn download(&self, wanted: &AbsentFile<'_>, partial: &mut PartialFile) -> Result<u64> {
        let max_bytes = self.max_bytes()?;
        let there = partial.file.metadata().map_err(at(&partial.path))?.len();
        let counted = DownloadCounter::new(self.observer, there);
        let mut failures = Vec::new();
        for url in wanted.urls {
            let work = ProgressReporter::new(&counted, wanted.entry, Action::Download, None);
            let file = WantedFile { url, sha256: &wanted.sha256, max_bytes };
            match self.downloader.download(&file, &mut partial.file, work) {
                Ok(()) => return Ok(counted.downloaded()),
                Err(error @ remote_source::Error::Cancelled(_)) => return Err(error.into()),
                Err(error) => failures.push(error),
            }
        }
        let problem = Problem::Fetch { entry: wanted.entry.to_owned(), failures };
        Err(at(self.options.file.path())(problem))
    }

    /// Returns the largest size of a file in bytes.
    fn max_bytes(&self) -> Result<u64> {
        match self.options.max_size {
            Some(max_size) => Ok(max_size),
            // A downloaded file is written twice: into the cache and into the carton.
            None => Ok(output::free_space(self.folder())? / 2),
        }
    }
}

/// File of an incomplete download.
struct PartialFile {
    file: File,
    path: PathBuf,
    /// True if a later run can resume from this file.
    is_shared: bool,
}

impl PartialFile {
    /// Opens and locks the partial file of an earlier run; creates a private one while another run holds the lock.
    fn open(folder: &Path, name: &str) -> Result<Self> {
        let path = folder.join(format!("{name}.partial"));
        let failed = |reason| FileError::Write { path: path.clone(), reason };
        loop {
            let mut options = OpenOptions::new();
            let file =
                options.read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
            if !try_lock_file(&file) {
                let prefix = format!("{name}.");
                let mut own = tempfile::Builder::new();
                let own = own.prefix(&prefix).suffix(".partial").tempfile_in(folder);
                let (file, path) = own.and_then(|own| Ok(own.keep()?)).map_err(failed)?;
                return Ok(Self { file, path, is_shared: false });
            }
            // Another run may have completed and renamed the file before this run locked it.
            let opened = file.try_clone().and_then(same_file::Handle::from_file).map_err(failed)?;
            if same_file::Handle::from_path(&path).is_ok_and(|there| there == opened) {
                return Ok(Self { file, path, is_shared: true });
            }
        }
    }

    /// Renames a complete download to `target`. If another run completed the file meanwhile, that file stays, because the
    /// other run may be reading it; a damaged file is replaced.
    fn complete(self, target: &Path, replace: bool) -> Result<()> {
        let Self { file, path, .. } = self;
        let named = || {
            file.sync_all()?;
            if replace {
                return std::fs::rename(&path, target);
            }
            match TempPath::try_from_path(&path)?.persist_noclobber(target) {
                Err(failed) if failed.error.kind() != io::ErrorKind::AlreadyExists => {
                    // A later run resumes from the partial file.
                    let _ = failed.path.keep();
                    Err(failed.error)
                }
                _ => Ok(()),
            }
        };
        Ok(named().map_err(|reason| FileError::Write { path: target.to_owned(), reason })?)
    }

    /// Removes the file if no later run could resume from it.
    fn remove_if_useless(self) {
        let is_empty = self.file.metadata().is_ok_and(|kind| kind.len() == 0);
        if is_empty || !self.is_shared {
            // The error of the download is reported already.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Locks the file until it is closed; false if another run holds the lock.
#[cfg(unix)]
fn try_lock_file(file: &File) -> bool {
    use rustix::fs::{FlockOperation, flock};
    // On a filesystem without locks, no other run is expected.
    !matches!(flock(file, FlockOperation::NonBlockingLockExclusive), Err(rustix::io::Errno::WOULDBLOCK))
}

#[cfg(not(unix))]
fn try_lock_file(_: &File) -> bool {
    true
}

/// Observer that counts downloaded bytes, including bytes that are downloaded again after a restart.
struct DownloadCounter<'o> {
    observer: &'o dyn Observer,
    /// Length of the partial file, and number of bytes downloaded.
    counts: Mutex<(u64, u64)>,
}

impl<'o> DownloadCounter<'o> {
    fn new(observer: &'o dyn Observer, there: u64) -> Self {
        Self { observer, counts: Mutex::new((there, 0)) }
    }

    fn downloaded(&self) -> u64 {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

impl Observer for DownloadCounter<'_> {
    fn progress(&self, step: ProgressUpdate<'_>) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let (there, downloaded) = *counts;
        *counts = (step.done, downloaded.saturating_add(step.done.saturating_sub(there)));
        drop(counts);
        self.observer.progress(step);
    }

    fn is_cancelled(&self) -> bool {
        self.observer.is_cancelled()
    }
}
