//! Scan of files for code that Python's own unpickler would execute.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use torch_import::{GlobalUse, OmittedCounts, PlaceStep, Risk, Scan};

use crate::{Observer, Result, format_things};

/// Version of the JSON fields of [`FileScan`].
const SCHEMA_VERSION: u32 = 1;
/// File extensions of checkpoints.
const EXTENSIONS: [&str; 10] =
    ["pth", "pt", "bin", "ckpt", "pkl", "pickle", "th", "torch", "joblib", "distcp"];

/// Options for scanning files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScanOptions {
    /// Files to scan, and folders whose files are all scanned.
    pub inputs: Vec<PathBuf>,
    /// True to verify the checksums of all records of an archive, which reads the whole file.
    pub checksums: bool,
    /// True to report unknown globals as findings.
    pub deny_unknown: bool,
}

impl ScanOptions {
    /// Creates options that scan `inputs`: files, and folders whose files are all scanned.
    pub fn new(inputs: Vec<PathBuf>) -> Self {
        Self { inputs, ..Self::default() }
    }
}

/// Result of scanning one file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileScan {
    /// Path of the file, or of a folder without a file that can be scanned.
    pub file: PathBuf,
    pub verdict: Verdict,
    /// Scan, or the reason for which there is none.
    pub outcome: ScanOutcome,
}

/// Scan of a file, or the reason for which there is none.
#[derive(Clone, Debug)]
pub enum ScanOutcome {
    /// The file was scanned, possibly not to its end.
    Scanned(Box<Scan>),
    /// The file or folder was not scanned.
    NotScanned { reason: String },
    /// A link in a folder leads to another folder, and was not followed.
    LinkedFolder {
        /// Link target, as stored in the link.
        target: PathBuf,
    },
}

/// Verdict on a scanned file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The file was not scanned, and did not have to be.
    Skipped,
    /// Loading the file would not execute anything.
    Clean,
    /// Part of the file was not scanned, and the rest is clean.
    NotScanned,
    /// Loading the file would execute code, or the file is irregular.
    Findings,
}

/// Counts of files by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ScanSummary {
    /// Number of files without findings.
    pub clean: usize,
    /// Number of files with findings.
    pub findings: usize,
    /// Number of files that were not scanned to their end.
    pub not_scanned: usize,
    /// Number of files in folders that are no checkpoints by content and by name.
    pub skipped: usize,
    /// Number of links to folders outside the scanned folder, which are not followed.
    pub linked_folders: usize,
    /// Number of folders without a file that can be scanned.
    pub empty: usize,
}

impl ScanSummary {
    /// Returns the number of files that were scanned, or should have been.
    pub fn files(&self) -> usize {
        self.clean.saturating_add(self.findings).saturating_add(self.not_scanned)
    }

    /// Returns the verdict on all files together.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self { findings: 1.., .. } => Verdict::Findings,
            Self { not_scanned: 1.., .. } | Self { empty: 1.., .. } => Verdict::NotScanned,
            _ => Verdict::Clean,
        }
    }
}

/// Scans files, and all files in folders. `found` receives the result of each file immediately.
///
/// # Errors
/// When an input is a URL, `found` fails, or `observer` stops the work. A file that cannot be read is reported by its
/// verdict, not as an error.
pub fn scan(
    options: &ScanOptions,
    observer: &dyn Observer,
    found: &mut dyn FnMut(&FileScan) -> Result<()>,
) -> Result<ScanSummary> {
    for path in &options.inputs {
        output::refuse_remote(path)?;
    }
    let mut scanner = Scanner { options, observer, on_file: found, summary: ScanSummary::default() };
    for path in &options.inputs {
        if path.is_dir() {
            scanner.scan_folder(path)?;
        } else if path.exists() {
            scanner.scan_file(path, false)?;
        } else {
            scanner.not_scanned(path, "there is no such file".to_owned())?;
        }
    }
    Ok(scanner.summary)
}

struct Scanner<'s> {
    options: &'s ScanOptions,
    observer: &'s dyn Observer,
    on_file: &'s mut dyn FnMut(&FileScan) -> Result<()>,
    summary: ScanSummary,
}

impl Scanner<'_> {
    fn scan_folder(&mut self, path: &Path) -> Result<()> {
        let before = self.summary;
        let files = match files_below(path) {
            Ok(files) => files,
            Err(reason) => return self.not_scanned(path, reason),
        };
        for file in files {
            match file.read_link() {
                Ok(target) if file.is_dir() => self.linked_folder(path, &file, target)?,
                Ok(target) if !file.exists() => {
                    let reason = format!("a link to {}, which is not there", target.display());
                    self.not_scanned(&file, reason)?;
                }
                _ => self.scan_file(&file, true)?,
            }
        }
        if self.summary.files() > before.files() {
            return Ok(());
        }
        self.summary.empty = self.summary.empty.saturating_add(1);
        let skipped = [
            (self.summary.skipped.saturating_sub(before.skipped), "other file"),
            (self.summary.linked_folders.saturating_sub(before.linked_folders), "link to a folder"),
        ];
        let skipped: Vec<String> = skipped
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| match (count, what) {
                (2.., "link to a folder") => format!("{count} links to folders"),
                _ => format_things(count, what),
            })
            .collect();
        let reason = if skipped.is_empty() {
            "the folder holds no file".to_owned()
        } else {
            format!("the folder holds no checkpoint and no pickle, only {}", skipped.join(" and "))
        };
        self.report_file(path, Verdict::NotScanned, ScanOutcome::NotScanned { reason })
    }

    /// Reports a link to a folder, unless the target is inside the scanned folder.
    fn linked_folder(&mut self, scanned: &Path, link: &Path, target: PathBuf) -> Result<()> {
        let is_inside = match (link.canonicalize(), scanned.canonicalize()) {
            (Ok(target), Ok(scanned)) => target.starts_with(scanned),
            _ => false,
        };
        if is_inside {
            return Ok(());
        }
        self.summary.linked_folders = self.summary.linked_folders.saturating_add(1);
        self.report_file(link, Verdict::Skipped, ScanOutcome::LinkedFolder { target })
    }

    fn scan_file(&mut self, path: &Path, in_folder: bool) -> Result<()> {
        let scan = match Scan::file(path, self.options.checksums, self.observer) {
            Ok(scan) => scan,
            Err(torch_import::Error::Cancelled(_)) => return Err(crate::Error::Cancelled),
            // Folders contain other files too, which are skipped. A file with the name of a checkpoint has to be checked by
            // the user.
            Err(torch_import::Error::Format { .. }) if in_folder && !is_named_as_checkpoint(path) => {
                self.summary.skipped = self.summary.skipped.saturating_add(1);
                return Ok(());
            }
            Err(error) => return self.not_scanned(path, error.to_string()),
        };
        let verdict = judge_scan(&scan, self.options.deny_unknown);
        let count = match verdict {
            Verdict::Clean => &mut self.summary.clean,
            Verdict::Findings => &mut self.summary.findings,
            Verdict::NotScanned | Verdict::Skipped => &mut self.summary.not_scanned,
        };
        *count = count.saturating_add(1);
        self.report_file(path, verdict, ScanOutcome::Scanned(Box::new(scan)))
    }

    fn not_scanned(&mut self, path: &Path, reason: String) -> Result<()> {
        self.summary.not_scanned = self.summary.not_scanned.saturating_add(1);
        self.report_file(path, Verdict::NotScanned, ScanOutcome::NotScanned { reason })
    }

    fn report_file(&mut self, path: &Path, verdict: Verdict, outcome: ScanOutcome) -> Result<()> {
        (self.on_file)(&FileScan { file: path.to_owned(), verdict, outcome })
    }
}

/// Returns all files below a folder, sorted, including links to folders, which are not followed, and dangling links with
/// names of checkpoints.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |folder: &Path, error: std::io::Error| format!("{}: {error}", folder.display());
    let mut folders = vec![folder.to_owned()];
    let mut files = Vec::new();
    while let Some(next) = folders.pop() {
        for entry in next.read_dir().map_err(|error| failed(&next, error))? {
            let entry = entry.map_err(|error| failed(&next, error))?;
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if path.is_file() || path.is_dir() || (is_named_as_checkpoint(&path) && !path.exists()) {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn is_named_as_checkpoint(file: &Path) -> bool {
    let extension = file.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension.as_str()))
}

fn judge_scan(scan: &Scan, deny_unknown: bool) -> Verdict {
    let denied =
        |found: &GlobalUse| found.risk == Risk::Dangerous || (deny_unknown && found.risk == Risk::Unknown);
    if !scan.findings.is_empty() || scan.uses().any(|(_, found)| denied(found)) {
        Verdict::Findings
    } else if scan.is_fully_read() {
        Verdict::Clean
    } else {
        Verdict::NotScanned
    }
}

impl Verdict {
    /// Returns the verdict in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Clean => "clean",
            Self::Findings => "findings",
            Self::NotScanned => "not scanned",
        }
    }
}

/// Returns the note on a link to a folder.
pub fn linked_folder_note(target: &Path) -> String {
    format!("a link to the folder {}, which is not followed; name it to scan it", target.display())
}

/// Returns the module and name of each global of a risk that a scan found, without duplicates.
pub fn globals_of_risk(scan: &Scan, risk: Risk) -> BTreeSet<(&str, &str)> {
    let found = scan.uses().filter(|(_, found)| found.risk == risk);
    found.map(|(_, found)| (found.global.module.as_str(), found.global.name.as_str())).collect()
}

impl Serialize for FileScan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (file, verdict) = (self.file.display().to_string(), self.verdict.name());
        match &self.outcome {
            ScanOutcome::Scanned(scan) => scan_to_json(&file, scan, verdict),
            ScanOutcome::NotScanned { reason } => json!({
                "schema_version": SCHEMA_VERSION,
                "file": file,
                "verdict": verdict,
                "missed": [reason],
            }),
            ScanOutcome::LinkedFolder { target } => json!({
                "schema_version": SCHEMA_VERSION,
                "file": file,
                "verdict": verdict,
                "notes": [linked_folder_note(target)],
            }),
        }
        .serialize(serializer)
    }
}

fn scan_to_json(file: &str, scan: &Scan, verdict: &str) -> Json {
    let pickles: Vec<Json> = scan
        .pickles
        .iter()
        .map(|pickle| {
            let globals: Vec<Json> = pickle.uses.iter().map(global_use_to_json).collect();
            let mut steps = pickle.place.0.iter().map(|step| match step {
                PlaceStep::Part(name) => json!(name),
                PlaceStep::Record(name) => json!(name),
                PlaceStep::Bytes(offset) | PlaceStep::Archive(offset) => json!(offset),
            });
            json!({
                "record": steps.next(),
                "within": steps.collect::<Vec<Json>>(),
                "offset": pickle.offset,
                "error": pickle.error.as_ref().map(ToString::to_string),
                "globals": globals,
            })
        })
        .collect();
    let findings: Vec<Json> =
        scan.findings.iter().map(|finding| json!({ "kind": finding.kind, "text": finding.text })).collect();
    let mut object = json!({
        "schema_version": SCHEMA_VERSION,
        "file": file,
        "verdict": verdict,
        "format": scan.format,
        "pickle_count": scan.count,
        "pickles": pickles,
        "irregularities": findings,
        "missed": scan.missed,
        "notes": scan.notes,
    });
    let OmittedCounts { globals, pickles, findings, missed } = scan.omitted;
    if scan.omitted.total() > 0
        && let Some(members) = object.as_object_mut()
    {
        let omitted =
            json!({ "globals": globals, "pickles": pickles, "irregularities": findings, "missed": missed });
        members.insert("omitted".to_owned(), omitted);
    }
    object
}

fn global_use_to_json(found: &GlobalUse) -> Json {
    let calls: Vec<Json> = found
        .calls
        .iter()
        .map(|call| json!({ "opcode": call.opcode, "offset": call.offset, "text": call.text }))
        .collect();
    json!({
        "module": found.global.module,
        "name": found.global.name,
        "alias_of": found.global.familiar_name(),
        "risk": found.risk.name(),
        "offset": found.global.offset,
        "calls": calls,
        "more_calls": found.unlisted_calls,
        "behind_error": found.after_error,
    })
}
