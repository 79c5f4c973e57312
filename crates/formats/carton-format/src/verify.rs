//! Verification of a carton: checks every hash, every checksum and every rule, and reports all findings together.
//!
//! Facts: the Carton v1 specification; requirements of Carton's own client beyond the specification become notes.

use std::collections::{HashMap, HashSet};
use std::io::BufRead;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use byte_source::{Cancelled, ProgressReporter, on_all_cores};

use crate::error::zip_error;
use crate::{
    Carton, CartonEntry, Config, DataType, DocumentProblems, Error, Links, MODEL_FOLDER, Manifest, Problem,
    Result, TensorIndex, TensorSpec,
};

/// Problem of the carton, found by verification.
#[derive(Debug)]
pub struct VerifyFinding {
    /// Path in the carton that the problem is about.
    pub entry: String,
    /// Description of the problem.
    pub what: String,
}

/// Result of a verification.
#[derive(Debug, Default)]
pub struct CartonVerification {
    /// All problems, sorted by path.
    pub findings: Vec<VerifyFinding>,
    /// Observations that are not problems.
    pub notes: Vec<String>,
    /// Number of hashed bytes, plus the lengths of the links' targets.
    pub bytes: u64,
    /// Number of files with matching hashes, including MANIFEST, LINKS and links.
    pub files: usize,
}

/// Function that takes the next bytes of a file, on any thread.
type TakeBytes<'t> = &'t mut (dyn FnMut(&[u8]) + Send);

/// Receiver of the bytes of one file of a carton, in order, while the file is hashed.
pub struct EntryTap<'t> {
    path: &'t str,
    receive: Mutex<TakeBytes<'t>>,
}

impl<'t> EntryTap<'t> {
    /// Creates a receiver of the bytes of the file at `path`, which is not a link.
    pub fn new(path: &'t str, receive: TakeBytes<'t>) -> Self {
        Self { path, receive: Mutex::new(receive) }
    }

    fn send(&self, bytes: &[u8]) {
        self.receive.lock().unwrap_or_else(PoisonError::into_inner)(bytes);
    }
}

impl Carton {
    /// Checks the whole carton. Files are hashed in parallel, one per core; `work` is told from any thread how many bytes
    /// are done.
    ///
    /// # Errors
    /// When the observer stops the work.
    pub fn verify(&self, work: ProgressReporter<'_>) -> Result<CartonVerification, Cancelled> {
        self.verify_with_tap(work, None)
    }

    /// Checks the whole carton as [`verify`](Self::verify) does, and sends the bytes of one file to `tap`. They end early if
    /// the file is damaged.
    ///
    /// # Errors
    /// When the observer stops the work.
    pub fn verify_with_tap(
        &self,
        work: ProgressReporter<'_>,
        tap: Option<&EntryTap<'_>>,
    ) -> Result<CartonVerification, Cancelled> {
        let mut report = self.check_hashes(work, tap)?;
        self.check_zip_structure(&mut report);
        self.check_listings(&mut report);
        self.check_documents(&mut report);
        // Later checks that read a damaged file find its damage again.
        let mut reported = HashSet::new();
        report.findings.retain(|finding| reported.insert((finding.entry.clone(), finding.what.clone())));
        report.findings.sort_by(|a, b| a.entry.cmp(&b.entry));
        Ok(report)
    }

    /// Checks the parts of the zip file that readers ignore.
    fn check_zip_structure(&self, report: &mut CartonVerification) {
        let Some(file) = self.zip() else { return };
        match zip_format::flaws(&**file) {
            Ok(flaws) => {
                for flaw in flaws {
                    report.add(flaw.entry().unwrap_or_default(), flaw.to_string());
                }
            }
            Err(error) => {
                let error = zip_error(error);
                report.add_error(&error.location().record.unwrap_or_default(), &error);
            }
        }
    }

    fn check_hashes(
        &self,
        observed: ProgressReporter<'_>,
        tap: Option<&EntryTap<'_>>,
    ) -> Result<CartonVerification, Cancelled> {
        // The largest file comes first, because it determines the total time.
        let mut entries: Vec<&CartonEntry> = self.entries().filter(|entry| !entry.is_symbolic_link).collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.len));
        let (done, report) = (AtomicU64::new(0), Mutex::new(CartonVerification::default()));
        let check = |(): &mut (), number: u64| {
            let entry = usize::try_from(number).ok().and_then(|number| entries.get(number));
            let Some(entry) = entry else { return Ok(()) };
            let tap = tap.filter(|tap| tap.path == entry.path);
            let result = self.check_entry_hash(entry, tap, &done, &|done| observed.advance(done));
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(()) => report.files = report.files.saturating_add(1),
                Err(error) if error.is_cancelled() => return Err(Cancelled),
                // `lists` reports all files that are not listed.
                Err(error) if is_unlisted(&error) => {}
                Err(error) => report.add_error(&entry.path, &error),
            }
            Ok(())
        };
        on_all_cores(entries.len() as u64, || (), check)?;
        let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
        report.bytes = done.into_inner();
        Ok(report)
    }

    fn check_entry_hash(
        &self,
        entry: &CartonEntry,
        tap: Option<&EntryTap<'_>>,
        done: &AtomicU64,
        advance: &dyn Fn(u64) -> Result<(), Cancelled>,
    ) -> Result<()> {
        let mut reader = self.read(&entry.path)?;
        loop {
            let bytes = reader.fill_buf().map_err(|error| self.reader_error(&entry.path, error))?;
            let len = bytes.len();
            if len == 0 {
                return Ok(());
            }
            if let Some(tap) = tap {
                tap.send(bytes);
            }
            reader.consume(len);
            let done = done.fetch_add(len as u64, Ordering::Relaxed).saturating_add(len as u64);
            advance(done)?;
        }
    }

    /// Checks that MANIFEST, LINKS and the files agree.
    fn check_listings(&self, report: &mut CartonVerification) {
        let mut folded: HashMap<String, &str> = HashMap::new();
        for entry in self.entries() {
            if let Some(other) = folded.insert(entry.path.to_lowercase(), &entry.path) {
                report.notes.push(format!(
                    "`{other}` and `{}` are the same file on systems that ignore case",
                    entry.path
                ));
            }
        }
        let Some(manifest) = self.manifest() else {
            report.notes.push("there is no MANIFEST to compare the files with".to_owned());
            let has_target = |entry: &&CartonEntry| entry.is_symbolic_link && self.link_target(entry).is_ok();
            self.entries().filter(has_target).for_each(|link| report.count_link(link));
            return;
        };
        for entry in self.entries() {
            let own = [Manifest::PATH, Links::PATH].contains(&entry.path.as_str());
            let listed = manifest.hash(&entry.path);
            if !own && listed.is_none() {
                report.add_error(&entry.path, &Problem::Unlisted { path: entry.path.clone() }.into());
            }
            if entry.is_symbolic_link {
                match self.link_target(entry) {
                    Err(error) => report.add_error(&entry.path, &error),
                    Ok(target) if manifest.hash(&target) != listed => report.add(
                        &entry.path,
                        format!(
                            "MANIFEST has different hashes for the link and for `{target}`, which it leads to"
                        ),
                    ),
                    Ok(_) if listed.is_some() => report.count_link(entry),
                    Ok(_) => {}
                }
            }
        }
        let absent = self.absent();
        for (path, _) in &absent {
            if let Err(error @ Problem::Missing { .. }) = self.entry(path) {
                report.add_error(path, &error.into());
            }
        }
        if !absent.is_empty() {
            report.notes.push(match absent.len() {
                1 => "1 file is left out; LINKS lists where to fetch it".to_owned(),
                n => format!("{n} files are left out; LINKS lists where to fetch them"),
            });
        }
        if !manifest.lines().any(|(path, _)| path.starts_with(MODEL_FOLDER)) {
            report.add(MODEL_FOLDER, format!("there is no file in {MODEL_FOLDER}"));
        }
    }

    /// Checks the documents against the specification.
    fn check_documents(&self, report: &mut CartonVerification) {
        let index = match self.tensor_index() {
            Ok(index) => {
                report.add_client_notes(&index.filled_in);
                if !self.has_file(TensorIndex::PATH) {
                    if self.entries().any(|entry| entry.path.starts_with("tensor_data/")) {
                        let error = Problem::Missing { path: TensorIndex::PATH.to_owned() };
                        report.add_error(TensorIndex::PATH, &error.into());
                    }
                    report.notes.push(format!("{} is missing: Carton's client needs it", TensorIndex::PATH));
                }
                Some(index.document)
            }
            Err(error) => {
                report.add_error(TensorIndex::PATH, &error);
                None
            }
        };
        for spec in index.iter().flat_map(|index| &index.tensors) {
            if let TensorSpec::Array { dtype: DataType::String, file, .. } = spec
                && let Err(error) = self.tensor_data(spec)
                && !is_not_fetched(&error)
            {
                report.add_error(&format!("tensor_data/{file}"), &error);
            }
        }
        match self.config() {
            Ok(config) => {
                report.add_client_notes(&config.filled_in);
                if let Some(index) = &index {
                    report.add_problems(&config.document.check(index, &|path| self.has_file(path)));
                }
            }
            Err(error) if is_not_fetched(&error) => {}
            Err(error) => report.add_error(Config::PATH, &error),
        }
    }
}

fn is_unlisted(error: &Error) -> bool {
    matches!(error.detail(), Some(Problem::Unlisted { .. }))
}

fn is_not_fetched(error: &Error) -> bool {
    matches!(error.detail(), Some(Problem::NotFetched { .. }))
}

impl CartonVerification {
    /// Counts a link with a valid target.
    fn count_link(&mut self, link: &CartonEntry) {
        self.files = self.files.saturating_add(1);
        self.bytes = self.bytes.saturating_add(link.len);
    }

    fn add(&mut self, entry: &str, what: String) {
        self.findings.push(VerifyFinding { entry: entry.to_owned(), what });
    }

    fn add_error(&mut self, entry: &str, error: &Error) {
        match error.detail() {
            Some(Problem::Document(problems)) => self.add_problems(problems),
            _ => self.add(entry, error.to_string()),
        }
    }

    fn add_problems(&mut self, problems: &DocumentProblems) {
        for problem in &problems.0 {
            self.add(&problem.document, problem.to_string());
        }
    }

    /// Adds notes for the fields that only Carton's client requires.
    fn add_client_notes(&mut self, added: &DocumentProblems) {
        self.notes.extend(added.0.iter().map(|problem| format!("{problem}: Carton's client needs it")));
    }
}
