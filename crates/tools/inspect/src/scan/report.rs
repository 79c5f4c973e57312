//! Results of a scan: verdicts on files, and their counts.

use std::path::PathBuf;

use serde::Serialize;
use torch_import::Scan;

use super::custom_code::CustomClass;
use super::policy::AllowedGlobal;

/// Result of scanning one file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileScan {
    /// Path of the file, or of a folder without a file that can be scanned.
    pub file: PathBuf,
    pub verdict: Verdict,
    /// Scan, or the reason for which there is none.
    pub outcome: ScanOutcome,
    /// Globals that are known only because the user allows them.
    pub allowed: Vec<AllowedGlobal>,
}

/// Scan of a file, or the reason for which there is none.
#[derive(Clone, Debug)]
pub enum ScanOutcome {
    /// The file was scanned, possibly not to its end.
    Scanned(Box<Scan>),
    /// The file or folder was not scanned.
    NotScanned { reason: String },
    /// The file is a configuration that names Python code, which a program may import. The code was not looked at.
    NamesCode { classes: Vec<CustomClass> },
    /// A file in a folder that is not a checkpoint, judging by its content and name.
    Skipped { reason: String },
    /// A link in a folder leads to another folder, and was not followed.
    LinkedFolder {
        /// Link target, as stored in the link.
        target: PathBuf,
    },
}

/// Verdict on a scanned file, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The path did not have to be scanned: a file in a folder that is not a checkpoint, or a link to a folder.
    Skipped,
    /// Loading the file runs nothing but what the lists have judged.
    Clean,
    /// The file names classes or functions of packages that are not known, or Python code next to it; the rest is clean.
    Unknown,
    /// The file has no format that holds a pickle, although it is named like a checkpoint or was asked for.
    NotACheckpoint,
    /// Part of the file was not scanned, and the rest has no findings.
    Incomplete,
    /// Loading the file runs code, or something that nobody has judged, or the file is irregular.
    Unsafe,
}

/// Counts of files by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ScanSummary {
    /// Number of files without findings.
    pub clean: usize,
    /// Number of files whose only findings are globals that are unknown, or Python code next to them.
    pub unknown: usize,
    /// Number of files that are not safe to load.
    #[serde(rename = "unsafe")]
    pub unsafe_files: usize,
    /// Number of files that were not scanned to their end.
    pub incomplete: usize,
    /// Number of files that are not checkpoints.
    pub not_a_checkpoint: usize,
    /// Number of files in folders that are not checkpoints, judging by content and name.
    pub skipped: usize,
    /// Number of links to folders outside the scanned folder, which are not followed.
    pub linked_folders: usize,
    /// Number of folders without a file that can be scanned.
    pub empty: usize,
}

impl ScanSummary {
    /// Returns the number of files that were scanned, or should have been.
    pub fn files(&self) -> usize {
        [self.clean, self.unknown, self.unsafe_files, self.incomplete, self.not_a_checkpoint]
            .into_iter()
            .fold(0, usize::saturating_add)
    }

    /// Returns the verdict on all files together: the worst.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self { unsafe_files: 1.., .. } => Verdict::Unsafe,
            Self { incomplete: 1.., .. } => Verdict::Incomplete,
            Self { not_a_checkpoint: 1.., .. } | Self { empty: 1.., .. } => Verdict::NotACheckpoint,
            Self { unknown: 1.., .. } => Verdict::Unknown,
            _ => Verdict::Clean,
        }
    }

    /// Returns the exit status of a program that reports the files: the first of 1 (unsafe), 2 (not read whole, or not a
    /// checkpoint) and 3 (unknown) that occurs, or 0. With `deny_unknown`, unknown files count as unsafe.
    pub fn exit_status(&self, deny_unknown: bool) -> u8 {
        match self {
            Self { unsafe_files: 1.., .. } => 1,
            Self { unknown: 1.., .. } if deny_unknown => 1,
            Self { incomplete: 1.., .. } | Self { not_a_checkpoint: 1.., .. } | Self { empty: 1.., .. } => 2,
            Self { unknown: 1.., .. } => 3,
            _ => 0,
        }
    }

    pub(super) fn count(&mut self, verdict: Verdict) {
        let count = match verdict {
            Verdict::Skipped => return,
            Verdict::Clean => &mut self.clean,
            Verdict::Unknown => &mut self.unknown,
            Verdict::NotACheckpoint => &mut self.not_a_checkpoint,
            Verdict::Incomplete => &mut self.incomplete,
            Verdict::Unsafe => &mut self.unsafe_files,
        };
        *count = count.saturating_add(1);
    }
}

impl Verdict {
    /// Returns the verdict's name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Clean => "clean",
            Self::Unknown => "unknown",
            Self::NotACheckpoint => "not_a_checkpoint",
            Self::Incomplete => "incomplete",
            Self::Unsafe => "unsafe",
        }
    }
}
