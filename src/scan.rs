//! Builder for a scan that reports the code that Python's unpickler would execute.

use byte_source::{Location, Observer};
use inspect::{FileScan, ScanOptions, ScanSummary, Verdict};

use crate::Result;

/// Returns a scan of `input`, a file or a folder with all of its files, which [`Scan::run`] starts.
pub fn scan(input: impl Into<Location>) -> Scan {
    Scan::new(input)
}

/// A scan that has not started.
#[derive(Clone, Debug)]
#[must_use = "a scan starts with `run`"]
pub struct Scan {
    options: ScanOptions,
}

/// Results of a scan, per file and in total.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScanReport {
    pub files: Vec<FileScan>,
    /// Number of files per verdict.
    pub summary: ScanSummary,
}

impl ScanReport {
    /// Returns the verdict on all files together.
    pub fn verdict(&self) -> Verdict {
        self.summary.verdict()
    }
}

impl Scan {
    /// Creates a scan of the file or folder `input`.
    pub fn new(input: impl Into<Location>) -> Self {
        Self { options: ScanOptions::new([input]) }
    }

    /// Adds a file or folder to scan.
    pub fn input(mut self, path: impl Into<Location>) -> Self {
        self.options.inputs.push(path.into());
        self
    }

    /// Compares the checksums of all records of an archive, which reads the whole file.
    pub fn checksums(mut self) -> Self {
        self.options.checksums = true;
        self
    }

    /// Reads the pickles and the directory of an archive, and not its storages, in which others could hide.
    pub fn pickles_only(mut self) -> Self {
        self.options.pickles_only = true;
        self
    }

    /// Takes unknown globals for known that fit `pattern`, such as `ultralytics.*`.
    pub fn allow(mut self, pattern: impl Into<String>) -> Self {
        self.options.allow.push(pattern.into());
        self
    }

    /// Takes unknown globals for known that the TOML file `path` allows.
    pub fn policy(mut self, path: impl Into<std::path::PathBuf>) -> Self {
        self.options.policy = Some(path.into());
        self
    }

    /// Scans all files. A file that cannot be read gets a verdict; it is not an error.
    ///
    /// # Errors
    /// When an input is an address, a pattern or the policy is wrong, or `observer` stops the work.
    pub fn run(&self, observer: &dyn Observer) -> Result<ScanReport> {
        let mut files = Vec::new();
        let summary = self.run_each(observer, &mut |file| files.push(file.clone()))?;
        Ok(ScanReport { files, summary })
    }

    /// Scans all files as [`run`](Self::run) does, but passes each file's result to `found` once it is scanned, and keeps
    /// none.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub fn run_each(&self, observer: &dyn Observer, found: &mut dyn FnMut(&FileScan)) -> Result<ScanSummary> {
        let mut found = |file: &FileScan| {
            found(file);
            Ok(())
        };
        inspect::scan(&self.options, observer, &mut found)
    }
}

impl From<ScanOptions> for Scan {
    fn from(options: ScanOptions) -> Self {
        Self { options }
    }
}
