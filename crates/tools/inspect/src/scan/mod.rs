//! Scan of files for code that Python's own unpickler would execute.

pub(crate) mod custom_code;
mod described_numbers;
mod json;
mod parts;
pub(crate) mod policy;
mod report;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{Location, Source, format_things};
use open::Error;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use torch_import::{
    Risk, Scan, ScanDepth, UNKNOWN_KIND, is_checkpoint_extension, is_foreign_model, unread_kind,
};

use self::custom_code::{CustomClass, Neighbours, first_bytes, scan_document, scan_text};
use self::described_numbers::DescribedNumbers;
use self::policy::Policy;
use crate::{Observer, Result};

pub use report::{FileScan, ScanOutcome, ScanSummary, Verdict};

/// Extensions of pickles that no program but a scan looks for.
const EXTENSIONS: [&str; 4] = ["cloudpickle", "dill", "distcp", "joblib"];

/// Largest number of files that are not on this machine and open at the same time.
const OPENED_MAX: usize = 8;
/// Files of a folder that are read before the first of them is reported.
const FILES_AHEAD: usize = 64;

/// Options for scanning files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
#[non_exhaustive]
pub struct ScanOptions {
    /// Files to scan, and folders whose files are all scanned.
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub inputs: Vec<Location>,
    /// Compare the checksums of all records, which reads the whole file, instead of only those of pickles
    #[cfg_attr(feature = "cli", arg(long))]
    pub checksums: bool,
    /// Read what PyTorch unpickles and the directory of an archive, and do not search its storages for hidden pickles
    #[cfg_attr(feature = "cli", arg(long, conflicts_with = "checksums"))]
    pub pickles_only: bool,
    /// Take unknown globals for known that fit a pattern, such as `ultralytics.*`; repeatable
    #[cfg_attr(feature = "cli", arg(long, value_name = "PATTERN"))]
    pub allow: Vec<String>,
    /// Take unknown globals for known that a TOML file allows: patterns with a reason and a date
    #[serde(with = "open::path_json::option")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath))]
    pub policy: Option<PathBuf>,
}

impl ScanOptions {
    /// Creates options that scan `inputs`: files, and folders whose files are all scanned.
    pub fn new<L: Into<Location>>(inputs: impl IntoIterator<Item = L>) -> Self {
        Self { inputs: inputs.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Returns the parts of each file to read.
    pub fn depth(&self) -> ScanDepth {
        match self {
            Self { checksums: true, .. } => ScanDepth::Checksums,
            Self { pickles_only: true, .. } => ScanDepth::PicklesOnly,
            _ => ScanDepth::Everything,
        }
    }
}

/// Scans files, and all files in folders. `found` receives the result of each file immediately.
///
/// # Errors
/// When `found` fails, `observer` stops the work, the policy or a pattern is wrong, or a folder that is not on this machine cannot be
/// read. A file that cannot be read is reported by its verdict, not as an error.
pub fn scan(
    options: &ScanOptions,
    observer: &dyn Observer,
    found: &mut dyn FnMut(&FileScan) -> Result<()>,
) -> Result<ScanSummary> {
    let mut scanner = Scanner {
        options,
        policy: Policy::read(options)?,
        observer,
        on_file: found,
        summary: ScanSummary::default(),
        packages: Vec::new(),
        neighbours: Neighbours::new(),
        described: DescribedNumbers::default(),
    };
    let is_file = |input: &Location| input.is_local() && input.path().exists() && !input.path().is_dir();
    for inputs in options.inputs.chunk_by(|a, b| is_file(a) && is_file(b)) {
        let Some(input) = inputs.first() else { continue };
        let path = input.path();
        if !input.is_local() {
            scanner.scan_elsewhere(input)?;
        } else if path.is_dir() {
            scanner.scan_folder(path)?;
        } else if path.exists() {
            let files: Vec<PathBuf> = inputs.iter().map(|input| input.path().to_owned()).collect();
            scanner.scan_files(&files, None)?;
        } else {
            scanner.not_scanned(path, "there is no such file".to_owned())?;
        }
    }
    Ok(scanner.summary)
}

struct Scanner<'s> {
    options: &'s ScanOptions,
    policy: Policy,
    observer: &'s dyn Observer,
    on_file: &'s mut dyn FnMut(&FileScan) -> Result<()>,
    summary: ScanSummary,
    /// Unpacked archives of `torch.package` among the scanned folders. Their Python modules may have any name.
    packages: Vec<PathBuf>,
    neighbours: Neighbours,
    described: DescribedNumbers,
}

impl Scanner<'_> {
    fn scan_folder(&mut self, path: &Path) -> Result<()> {
        let before = self.summary;
        let files = match files_below(path) {
            Ok(files) => files,
            Err(reason) => return self.not_scanned(path, reason),
        };
        self.packages = packages_of(&files);
        self.scan_files(&files, Some(path))?;
        self.report_empty_folder(path, before)
    }

    /// Scans files, of `folder` if they were found in one. They are read side by side, and reported in their order.
    fn scan_files(&mut self, files: &[PathBuf], folder: Option<&Path>) -> Result<()> {
        let (depth, observer) = (self.options.depth(), self.observer);
        let read = |file: &PathBuf| match file.read_link() {
            Ok(target) if file.is_dir() || !file.exists() => Err(target),
            _ => Ok(Scan::file(file, depth, observer)),
        };
        for files in files.chunks(FILES_AHEAD) {
            let found: Vec<_> = match files {
                // Starting threads takes longer than most files.
                [file] => vec![read(file)],
                _ => files.par_iter().with_max_len(1).map(read).collect(),
            };
            for (file, found) in files.iter().zip(found) {
                match (found, folder) {
                    (Ok(scan), _) => self.scanned(&file.into(), scan, folder.is_some(), None)?,
                    (Err(target), Some(folder)) if file.is_dir() => {
                        self.linked_folder(folder, file, target)?;
                    }
                    (Err(target), _) => {
                        let reason = format!("a link to {}, which is not there", target.display());
                        self.not_scanned(file, reason)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Scans a file or all files of a folder that are not on this machine.
    fn scan_elsewhere(&mut self, input: &Location) -> Result<()> {
        let unread = |error: Error| error.in_file(input.path());
        if !input.is_folder() {
            return self.scan_source(&input.open().map_err(unread)?, input, false);
        }
        let before = self.summary;
        let files = input.files_below().map_err(|reason| unread(reason.into()))?;
        let files: Vec<PathBuf> = files.iter().map(|file| input.path().join(file)).collect();
        self.packages = packages_of(&files);
        for files in files.chunks(OPENED_MAX) {
            for (source, file) in input.store().open(files).map_err(unread)?.iter().zip(files) {
                self.scan_source(source, &input.at(file), true)?;
            }
        }
        self.report_empty_folder(input.path(), before)
    }

    /// Reports a folder in which no file was scanned; `before` are the counts before the folder.
    fn report_empty_folder(&mut self, path: &Path, before: ScanSummary) -> Result<()> {
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
            "the folder is empty".to_owned()
        } else {
            format!("there is no checkpoint and no pickle in the folder, only {}", skipped.join(" and "))
        };
        self.report_file(path, Verdict::NotACheckpoint, ScanOutcome::NotScanned { reason })
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

    /// Scans an open file.
    fn scan_source(&mut self, source: &Arc<dyn Source>, file: &Location, in_folder: bool) -> Result<()> {
        let scan = Scan::source(source, self.options.depth(), self.observer);
        self.scanned(file, scan, in_folder, Some(source))
    }

    /// Judges and reports the scan of a file, which is open as `source`.
    fn scanned(
        &mut self,
        file: &Location,
        scan: torch_import::Result<Scan>,
        in_folder: bool,
        source: Option<&Arc<dyn Source>>,
    ) -> Result<()> {
        let path = file.path();
        let in_package = self.packages.iter().any(|folder| path.starts_with(folder));
        if in_package && path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("py")) {
            let reason = "Python code of a package, which runs when the package is loaded, is not scanned";
            return self.not_scanned(path, reason.to_owned());
        }
        if in_folder && is_triton_backend(path) {
            let reason = "native code of a backend, which Triton runs, is not scanned";
            return self.not_scanned(path, reason.to_owned());
        }
        let is_other_format = |error: &torch_import::Error| {
            matches!(
                error.detail(),
                Some(torch_import::Problem::Format { .. } | torch_import::Problem::Archive { .. })
            )
        };
        let scan = match scan {
            Err(error) if error.is_cancelled() => return Err(error),
            Err(error) if !is_other_format(&error) => return self.not_scanned(path, error.to_string()),
            scan => scan,
        };
        let document = match scan_document(file, source, &mut self.neighbours, self.observer).transpose() {
            Ok(document) => document,
            Err(error) if error.is_cancelled() => return Err(error),
            Err(error) => return self.not_scanned(path, error.to_string()),
        };
        let (document, classes) = document.unwrap_or_default();
        let judged = judge_scan(&document);
        let mut scan = match scan {
            Ok(scan) => append_scan(scan, document, &classes),
            Err(_) if judged > Verdict::Unknown || judged == Verdict::Unknown && classes.is_empty() => {
                document
            }
            Err(_) if !classes.is_empty() => {
                self.summary.count(Verdict::Unknown);
                return self.report_file(path, Verdict::Unknown, ScanOutcome::NamesCode { classes });
            }
            // Folders contain other files too, which are skipped. A file with the name of a checkpoint has to be checked by
            // the user.
            Err(error) if !in_folder || is_named_as_checkpoint(path) => {
                return self.not_a_checkpoint(path, &error);
            }
            Err(error) => {
                let kind = unread_kind(&path.to_string_lossy(), &first_bytes(file, source));
                let described = &mut self.described;
                if let Some(kind) = kind.filter(|kind| *kind != UNKNOWN_KIND || !described.has(file, source))
                {
                    return self.not_scanned(path, format!("{kind}, which nothing here reads"));
                }
                match scan_text(file, source, self.observer) {
                    Some(Ok(scan)) if judge_scan(&scan) != Verdict::Clean => return self.judged(path, scan),
                    Some(Err(error)) if error.is_cancelled() => return Err(error),
                    Some(Err(error)) => return self.not_scanned(path, error.to_string()),
                    _ => {}
                }
                self.summary.skipped = self.summary.skipped.saturating_add(1);
                let outcome = ScanOutcome::Skipped { reason: error.to_string() };
                return self.report_file(path, Verdict::Skipped, outcome);
            }
        };
        // The two formats have no signature.
        if matches!(scan.format, "onnx" | "msgpack") && is_foreign_model(&path.to_string_lossy()) {
            scan.missed.push("another program may run it, and nothing here reads it".to_owned());
        }
        parts::check_parts(file, &mut scan);
        if in_package {
            scan.distrust_globals();
        }
        self.judged(path, scan)
    }

    /// Judges and reports a scan.
    fn judged(&mut self, path: &Path, mut scan: Scan) -> Result<()> {
        let allowed = self.policy.apply(&mut scan);
        let of_name = open::Note::of_other_format(path, scan.format).map(|note| note.to_string());
        let notes = [of_name, self.policy.note(&scan)];
        scan.notes.extend(notes.into_iter().flatten());
        let verdict = judge_scan(&scan);
        self.summary.count(verdict);
        let outcome = ScanOutcome::Scanned(Box::new(scan));
        (self.on_file)(&FileScan { file: path.to_owned(), verdict, outcome, allowed })
    }

    fn not_a_checkpoint(&mut self, path: &Path, error: &torch_import::Error) -> Result<()> {
        self.summary.count(Verdict::NotACheckpoint);
        let outcome = ScanOutcome::NotScanned { reason: error.to_string() };
        self.report_file(path, Verdict::NotACheckpoint, outcome)
    }

    fn not_scanned(&mut self, path: &Path, reason: String) -> Result<()> {
        self.summary.count(Verdict::Incomplete);
        self.report_file(path, Verdict::Incomplete, ScanOutcome::NotScanned { reason })
    }

    fn report_file(&mut self, path: &Path, verdict: Verdict, outcome: ScanOutcome) -> Result<()> {
        (self.on_file)(&FileScan { file: path.to_owned(), verdict, outcome, allowed: Vec::new() })
    }
}

/// Returns all files below a folder, sorted, including pipes, sockets and devices; links to folders, which are not followed;
/// and dangling links with names of checkpoints.
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
            } else if is_reported(&path) {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the folders that `torch.package` reads like its archives, because they have a `.data/extern_modules`, in any capitals.
fn packages_of(files: &[PathBuf]) -> Vec<PathBuf> {
    let is_named =
        |path: &Path, name: &str| path.file_name().is_some_and(|file| file.eq_ignore_ascii_case(name));
    let data = files.iter().filter_map(|file| match file.parent() {
        Some(folder) if is_named(file, "extern_modules") && is_named(folder, ".data") => Some(folder),
        // A link to a folder.
        _ => is_named(file, ".data").then_some(file.as_path()),
    });
    data.filter_map(|data| Some(data.parent()?.to_owned())).collect()
}

/// Returns true unless `path` is a dangling link that does not have the name of a checkpoint. A path that must not be looked
/// at is reported.
fn is_reported(path: &Path) -> bool {
    match path.try_exists() {
        Ok(exists) => exists || is_named_as_checkpoint(path),
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied || is_named_as_checkpoint(path),
    }
}

/// Returns true for a library that Triton loads from the folder of a model or of its version.
fn is_triton_backend(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("libtriton_") && name.ends_with(".so")
}

fn is_named_as_checkpoint(file: &Path) -> bool {
    let extension = file.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    is_foreign_model(&file.to_string_lossy())
        || extension.is_some_and(|extension| {
            EXTENSIONS.contains(&extension.as_str()) || is_checkpoint_extension(&extension)
        })
}

/// Adds what the scan of a file as a document found to the scan of the same file in another format.
fn append_scan(mut scan: Scan, document: Scan, classes: &[CustomClass]) -> Scan {
    let code = classes.iter().map(|class| format!("Python code: {} of {}", class.class, class.place()));
    scan.missed.extend(code);
    scan.pickles.extend(document.pickles);
    scan.findings.extend(document.findings);
    scan.missed.extend(document.missed);
    scan
}

fn judge_scan(scan: &Scan) -> Verdict {
    let worst = scan.uses().map(|(_, found)| found.risk).max().unwrap_or(Risk::Known);
    if !scan.findings.is_empty() || worst >= Risk::Unreviewed {
        Verdict::Unsafe
    } else if !scan.is_fully_read() {
        Verdict::Incomplete
    } else if worst == Risk::Unknown {
        Verdict::Unknown
    } else {
        Verdict::Clean
    }
}

/// Returns the note on a link to a folder.
pub fn linked_folder_note(target: &Path) -> String {
    format!("a link to the folder {}, which is not followed; name it to scan it", target.display())
}

/// Note on a configuration that names Python code.
pub const CUSTOM_CODE_NOTE: &str = "programs import this Python code if they trust it, as `transformers` does with trust_remote_code=True; it is not scanned";

/// Returns the module and name of each global of a risk that a scan found, without duplicates.
pub fn globals_of_risk(scan: &Scan, risk: Risk) -> BTreeSet<(&str, &str)> {
    let found = scan.uses().filter(|(_, found)| found.risk == risk);
    found.map(|(_, found)| (found.global.module.as_str(), found.global.name.as_str())).collect()
}
