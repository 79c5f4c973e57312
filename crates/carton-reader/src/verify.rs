//! Every hash, every checksum, every rule, all findings together.

use std::collections::{HashMap, HashSet};
use std::io::BufRead;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use carton_format::{Config, DataType, Links, Manifest, Problems, TensorIndex, TensorSpec};
use mapped::Cancelled;

use crate::{Carton, Entry, Error, MODEL};

/// Something that is wrong.
#[derive(Debug)]
pub struct Finding {
    /// The path in the carton that it is about.
    pub entry: String,
    /// What is wrong.
    pub what: String,
}

/// What a verification found.
#[derive(Debug, Default)]
pub struct Report {
    /// What is wrong, sorted by path.
    pub findings: Vec<Finding>,
    /// What is allowed and worth knowing.
    pub notes: Vec<String>,
    /// Bytes that were hashed.
    pub bytes: u64,
    /// Files whose hashes are right.
    pub files: usize,
}

impl Carton {
    /// Reads all of it. Files are hashed in parallel, one a core; `progress` receives the bytes that are done, from any
    /// thread.
    ///
    /// # Errors
    /// Only when `progress` stops the work.
    pub fn verify(&self, progress: &(dyn Fn(u64) -> ControlFlow<()> + Sync)) -> Result<Report, Cancelled> {
        let mut report = self.hashes(progress)?;
        self.container(&mut report);
        self.lists(&mut report);
        self.documents(&mut report);
        // What is damaged is found again by who reads it.
        let mut said = HashSet::new();
        report.findings.retain(|finding| said.insert((finding.entry.clone(), finding.what.clone())));
        report.findings.sort_by(|a, b| a.entry.cmp(&b.entry));
        Ok(report)
    }

    /// What no reader of the zip file looks at.
    fn container(&self, report: &mut Report) {
        let Some(file) = self.zip() else { return };
        match zip_index::flaws(file) {
            Ok(flaws) => {
                for flaw in flaws {
                    report.say(flaw.entry().unwrap_or_default(), flaw.to_string());
                }
            }
            Err(error) => report.found(error.entry().unwrap_or_default(), &Error::Zip(error.clone())),
        }
    }

    fn hashes(&self, progress: &(dyn Fn(u64) -> ControlFlow<()> + Sync)) -> Result<Report, Cancelled> {
        // The largest first: it decides when all are done.
        let mut entries: Vec<&Entry> = self.entries().filter(|entry| !entry.link).collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.len));
        let (next, done, stopped) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let report = Mutex::new(Report::default());
        let work = || {
            while let Some(entry) = entries.get(next.fetch_add(1, Ordering::Relaxed)) {
                let result = self.hash(entry, &done, &|done| {
                    let flow =
                        if stopped.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { progress(done) };
                    stopped.fetch_or(flow.is_break(), Ordering::Relaxed);
                    flow
                });
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
                match result {
                    Ok(()) => report.files = report.files.saturating_add(1),
                    // Said below, of all files that are not listed.
                    Err(Error::Unlisted { .. }) => {}
                    Err(error) => report.found(&entry.path, &error),
                }
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(entries.len());
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
        report.bytes = done.into_inner();
        if stopped.into_inner() { Err(Cancelled) } else { Ok(report) }
    }

    fn hash(
        &self,
        entry: &Entry,
        done: &AtomicU64,
        progress: &dyn Fn(u64) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut reader = self.read(&entry.path)?;
        loop {
            let len = reader.fill_buf().map_err(|error| self.unwrapped(&entry.path, error))?.len();
            if len == 0 {
                return Ok(());
            }
            reader.consume(len);
            let done = done.fetch_add(len as u64, Ordering::Relaxed).saturating_add(len as u64);
            if progress(done).is_break() {
                return Ok(());
            }
        }
    }

    /// MANIFEST, LINKS and the files must tell the same.
    fn lists(&self, report: &mut Report) {
        let mut folded: HashMap<String, &str> = HashMap::new();
        for entry in self.entries() {
            if let Some(other) = folded.insert(entry.path.to_lowercase(), &entry.path) {
                report.notes.push(format!(
                    "`{other}` and `{}` are one file where upper and lower case are the same",
                    entry.path
                ));
            }
        }
        let Some(manifest) = self.manifest() else {
            report.notes.push("there is no MANIFEST: nothing says what the files should be".to_owned());
            return;
        };
        for entry in self.entries() {
            let own = [Manifest::PATH, Links::PATH].contains(&entry.path.as_str());
            let listed = manifest.hash(&entry.path);
            if !own && listed.is_none() {
                report.found(&entry.path, &Error::Unlisted { path: entry.path.clone() });
            }
            if entry.link {
                match self.link_target(entry) {
                    Err(error) => report.found(&entry.path, &error),
                    Ok(target) if manifest.hash(&target) != listed => report.say(
                        &entry.path,
                        format!(
                            "MANIFEST has another hash for the link than for `{target}`, to which it leads"
                        ),
                    ),
                    Ok(_) => {}
                }
            }
        }
        let absent = self.absent();
        for (path, _) in &absent {
            if let Err(error @ Error::Missing { .. }) = self.entry(path) {
                report.found(path, &error);
            }
        }
        if !absent.is_empty() {
            report.notes.push(format!("{} files are not here; LINKS says where to fetch them", absent.len()));
        }
        if !manifest.lines().any(|(path, _)| path.starts_with(MODEL)) {
            report.say(MODEL, format!("there is no file in {MODEL}"));
        }
    }

    /// The rules of the documents.
    fn documents(&self, report: &mut Report) {
        let index = match self.tensor_index() {
            Ok(index) => {
                report.needs(&index.added);
                if !self.has(TensorIndex::PATH) {
                    if self.entries().any(|entry| entry.path.starts_with("tensor_data/")) {
                        let error = Error::Missing { path: TensorIndex::PATH.to_owned() };
                        report.found(TensorIndex::PATH, &error);
                    }
                    report.notes.push(format!("{} is missing: Carton's client needs it", TensorIndex::PATH));
                }
                Some(index.document)
            }
            Err(error) => {
                report.found(TensorIndex::PATH, &error);
                None
            }
        };
        for spec in index.iter().flat_map(|index| &index.tensors) {
            if let TensorSpec::Array { dtype: DataType::String, file, .. } = spec
                && let Err(error) = self.tensor_data(spec)
                && !matches!(error, Error::Elsewhere { .. })
            {
                report.found(&format!("tensor_data/{file}"), &error);
            }
        }
        match self.config() {
            Ok(config) => {
                report.needs(&config.added);
                if let Some(index) = &index {
                    report.problems(&config.document.check(index, &|path| self.has(path)));
                }
            }
            Err(Error::Elsewhere { .. }) => {}
            Err(error) => report.found(Config::PATH, &error),
        }
    }
}

impl Report {
    fn say(&mut self, entry: &str, what: String) {
        self.findings.push(Finding { entry: entry.to_owned(), what });
    }

    fn found(&mut self, entry: &str, error: &Error) {
        match error {
            Error::Format(carton_format::Error::Document(problems)) => self.problems(problems),
            error => self.say(entry, error.to_string()),
        }
    }

    fn problems(&mut self, problems: &Problems) {
        for problem in &problems.0 {
            self.say(&problem.document, problem.to_string());
        }
    }

    /// What the specification does not ask for and the client does.
    fn needs(&mut self, added: &Problems) {
        self.notes.extend(added.0.iter().map(|problem| format!("{problem}: Carton's client needs it")));
    }
}
