//! Limit on the memory that several jobs take together.
//!
//! Weights pass in windows, so a job takes memory for the objects of its pickles and for its names: about 24 times their bytes
//! in the file, which holds for a checkpoint of 100,000 tensors. A job whose estimate does not fit waits; a job alone never does.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use byte_source::{Cancelled, Checks, MappedFile, Observer, Source};
use zip_format::ZipIndex;

/// Memory of a job without any names.
const BASE: u64 = 16 << 20;
/// Bytes of memory for each byte of a pickle or a header.
const FACTOR: u64 = 24;
/// Number of bytes of a file without a directory that can be a pickle.
const PICKLE_MAX: u64 = 64 << 20;
/// Time after which a waiting job asks whether it is to stop.
const PERIOD: Duration = Duration::from_millis(100);

/// Memory that jobs share.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    limit: u64,
    used: Mutex<u64>,
    freed: Condvar,
}

/// Part of the memory, which is free again when this is dropped.
pub(crate) struct MemoryShare<'b> {
    budget: &'b MemoryBudget,
    bytes: u64,
}

impl MemoryBudget {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, used: Mutex::new(0), freed: Condvar::new() }
    }

    /// Waits until the estimate for an input fits next to the other jobs.
    ///
    /// # Errors
    /// When `observer` stops the work.
    pub(crate) fn reserve(
        &self,
        input: &Path,
        jobs: usize,
        observer: &dyn Observer,
    ) -> Result<MemoryShare<'_>, Cancelled> {
        let small = self.limit.checked_div(jobs as u64).unwrap_or(0);
        let bytes = estimate_memory(input, small.checked_div(FACTOR).unwrap_or(0));
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        while *used > 0 && used.saturating_add(bytes) > self.limit {
            observer.check()?;
            used = self.freed.wait_timeout(used, PERIOD).unwrap_or_else(PoisonError::into_inner).0;
        }
        *used = used.saturating_add(bytes);
        Ok(MemoryShare { budget: self, bytes })
    }
}

/// Returns an estimate in bytes of the memory of a job. A file of at most `small` bytes is not opened for it.
pub(crate) fn estimate_memory(input: &Path, small: u64) -> u64 {
    let of_names = |names: u64| BASE.saturating_add(names.saturating_mul(FACTOR));
    let Ok(metadata) = input.metadata() else { return BASE };
    let most = of_names(metadata.len());
    if metadata.is_file() && metadata.len() > small {
        return of_names(names_len(input).unwrap_or_else(|| metadata.len().min(PICKLE_MAX))).min(most);
    }
    let files = input.read_dir().into_iter().flatten().flatten();
    let files = files.map(|file| file.path()).filter(|path| path.is_file());
    files.fold(most, |sum, file| {
        let len = file.metadata().map_or(0, |metadata| metadata.len());
        sum.saturating_add(names_len(&file).unwrap_or(0).min(len).saturating_mul(FACTOR))
    })
}

/// Returns the number of bytes of the pickles in a zip archive, or of the header of a safetensors file.
fn names_len(path: &Path) -> Option<u64> {
    let source: Arc<dyn Source> = Arc::new(MappedFile::open(path).ok()?);
    if let Ok((index, _)) = ZipIndex::open(Arc::clone(&source), Checks::WhenRead, &()) {
        let pickles =
            index.entries.iter().filter(|entry| Path::new(&entry.name).extension() == Some("pkl".as_ref()));
        return Some(pickles.fold(0, |sum, entry| entry.len.saturating_add(sum)));
    }
    let mut start = [0; 9];
    source.read_at(&mut start, 0).ok()?;
    let (len, rest) = start.split_first_chunk::<8>()?;
    (rest == b"{").then(|| u64::from_le_bytes(*len))
}

impl Drop for MemoryShare<'_> {
    fn drop(&mut self) {
        let mut used = self.budget.used.lock().unwrap_or_else(PoisonError::into_inner);
        *used = used.saturating_sub(self.bytes);
        self.budget.freed.notify_all();
    }
}

/// Returns three quarters of the memory that is free for this process, if the system reports it.
pub fn default_memory_limit() -> Option<u64> {
    let text = |path: &str| std::fs::read_to_string(path).ok();
    let kilobytes = |text: String| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    let available = text("/proc/meminfo").and_then(kilobytes)?.saturating_mul(1024);
    let of_group = || -> Option<u64> {
        let number = |path: &str| text(path)?.trim().parse::<u64>().ok();
        Some(number("/sys/fs/cgroup/memory.max")?.saturating_sub(number("/sys/fs/cgroup/memory.current")?))
    };
    let free = of_group().map_or(available, |group| group.min(available));
    Some(free.saturating_sub(free / 4))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    struct Stopped;

    impl Observer for Stopped {
        fn is_cancelled(&self) -> bool {
            true
        }
    }

    #[test]
    fn jobs_wait_for_memory() {
        let budget = MemoryBudget::new(BASE * 2);
        let (running, most) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let share = budget.reserve(Path::new("missing"), 8, &()).expect("it is not stopped");
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(2));
                    running.fetch_sub(1, Ordering::SeqCst);
                    drop(share);
                });
            }
        });
        assert!(most.into_inner() <= 2);
        assert_eq!(*budget.used.lock().expect("no panic"), 0);
    }

    #[test]
    fn a_job_alone_never_waits() {
        let budget = MemoryBudget::new(1);
        let alone = budget.reserve(Path::new("missing"), 1, &Stopped);
        assert!(alone.is_ok());
        assert!(budget.reserve(Path::new("missing"), 1, &Stopped).is_err());
    }
}
