//! Reports what files would execute if Python's unpickler loaded them.

use std::path::PathBuf;

use pipeline::{FileScan, Observer, ScanOptions, ScanSummary, Verdict};

use crate::Result;

/// Returns a scan of `input`, a file or a folder whose files are all scanned, which [`Scan::run`] starts.
pub fn scan(input: impl Into<PathBuf>) -> Scan {
    Scan::new(input)
}

/// A scan that has not started.
#[derive(Clone, Debug)]
#[must_use = "a scan starts with `run`"]
pub struct Scan {
    options: ScanOptions,
}

/// What a scan found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScanReport {
    /// What was found in each file.
    pub files: Vec<FileScan>,
    /// How many files have which verdict.
    pub summary: ScanSummary,
}

impl ScanReport {
    /// The verdict on all files together.
    pub fn verdict(&self) -> Verdict {
        self.summary.verdict()
    }
}

impl Scan {
    /// A scan of `input`.
    pub fn new(input: impl Into<PathBuf>) -> Self {
        Self { options: ScanOptions::new(vec![input.into()]) }
    }

    /// Adds a file or folder.
    pub fn input(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.inputs.push(path.into());
        self
    }

    /// Compares the checksums of all records of an archive, which reads the whole file.
    pub fn checksums(mut self) -> Self {
        self.options.checksums = true;
        self
    }

    /// Makes globals that are not known findings.
    pub fn deny_unknown(mut self) -> Self {
        self.options.deny_unknown = true;
        self
    }

    /// Scans all files. A file that cannot be read has a verdict; it is not an error.
    ///
    /// # Errors
    /// When an input is an address, or `observer` stops the work.
    pub fn run(&self, observer: &dyn Observer) -> Result<ScanReport> {
        let mut files = Vec::new();
        let summary = self.run_each(observer, &mut |file| files.push(file.clone()))?;
        Ok(ScanReport { files, summary })
    }

    /// Scans all files as [`run`](Self::run) does, and keeps nothing: `found` receives each file when it was scanned.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub fn run_each(&self, observer: &dyn Observer, found: &mut dyn FnMut(&FileScan)) -> Result<ScanSummary> {
        let mut found = |file: &FileScan| {
            found(file);
            Ok(())
        };
        Ok(pipeline::scan(&self.options, observer, &mut found)?)
    }
}

impl From<ScanOptions> for Scan {
    fn from(options: ScanOptions) -> Self {
        Self { options }
    }
}
