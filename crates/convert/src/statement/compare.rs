//! Compares what a conversion makes with the files of an output, while it is made.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use byte_source::{Listing, Location, Replaced, Source, Stat, Store, Upload};
use serde::Serialize;

/// Difference between an output and what its statement says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StatementFinding {
    /// Path of the file in the output, name of the input, or place in the statement.
    pub file: String,
    /// Offset of the first byte that differs; `None` if the file is missing, or no file is compared.
    pub offset: Option<u64>,
    /// Description of the difference.
    pub what: String,
}

impl StatementFinding {
    pub(super) fn new(file: impl Into<String>, what: impl Into<String>) -> Self {
        Self { file: file.into(), offset: None, what: what.into() }
    }
}

/// Store whose files are compared with those of an output, and not kept.
#[derive(Clone, Debug)]
pub(super) struct ComparingStore {
    /// Path of the output in this store.
    made: PathBuf,
    /// The output that is compared: its folder, or the file.
    output: Location,
    compared: Arc<Mutex<Compared>>,
}

/// Sizes and differences of the files that were compared.
#[derive(Debug, Default)]
pub(super) struct Compared {
    pub(super) findings: Vec<StatementFinding>,
    /// Paths of the files that were made, in the output.
    pub(super) made: BTreeSet<PathBuf>,
    pub(super) nbytes: u64,
}

impl ComparingStore {
    pub(super) fn new(made: PathBuf, output: Location) -> Self {
        Self { made, output, compared: Arc::default() }
    }

    /// Returns what was compared so far.
    pub(super) fn take(&self) -> Compared {
        std::mem::take(&mut *self.compared.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the file of the output that has the place of a file of this store, and its name.
    fn place(&self, path: &Path) -> (Location, String) {
        let inside = path.strip_prefix(&self.made).ok().filter(|inside| *inside != Path::new(""));
        match inside {
            Some(inside) => (self.output.join(inside), inside.to_string_lossy().replace('\\', "/")),
            None if self.output.is_folder() => {
                (self.output.join(output::file_name(path)), output::file_name(path))
            }
            None if path == self.made => (self.output.clone(), output::file_name(path)),
            // A document next to a file.
            None => (self.output.parent().join(output::file_name(path)), output::file_name(path)),
        }
    }
}

impl Store for ComparingStore {
    fn list(&self, _folder: &Path) -> io::Result<Listing> {
        Ok(Listing::default())
    }

    fn stat(&self, _path: &Path) -> io::Result<Option<Stat>> {
        Ok(None)
    }

    fn open(&self, _files: &[PathBuf]) -> Result<Vec<Arc<dyn Source>>, byte_source::Error> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn create(&self, path: &Path, _len: u64) -> io::Result<Box<dyn Upload>> {
        let (file, name) = self.place(path);
        let mut compared = self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        compared.made.insert(file.path().to_owned());
        let expected = if file.is_file() {
            Some(file.open().map_err(io::Error::other)?)
        } else {
            compared.findings.push(StatementFinding::new(&name, "is missing"));
            None
        };
        Ok(Box::new(ComparedFile { name, expected, offset: 0, compared: Arc::clone(&self.compared) }))
    }
}

/// File that is compared while it is made.
#[derive(Debug)]
struct ComparedFile {
    name: String,
    /// File of the output; `None` if it is missing, or a difference was found.
    expected: Option<Arc<dyn Source>>,
    /// Number of bytes that were made.
    offset: u64,
    compared: Arc<Mutex<Compared>>,
}

impl ComparedFile {
    fn differs(&mut self, offset: u64, what: &str) {
        self.expected = None;
        let finding = StatementFinding { offset: Some(offset), ..StatementFinding::new(&self.name, what) };
        self.compared.lock().unwrap_or_else(PoisonError::into_inner).findings.push(finding);
    }
}

impl Write for ComparedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let start = self.offset;
        self.offset = start.saturating_add(bytes.len() as u64);
        let Some(expected) = &self.expected else { return Ok(bytes.len()) };
        let end = self.offset.min(expected.len());
        let found = expected.read_window(start.min(end)..end).map_err(io::Error::other)?;
        if bytes.get(..found.len()) != Some(&*found) {
            let same = bytes.iter().zip(found.iter()).take_while(|(made, found)| made == found).count();
            self.differs(start.saturating_add(same as u64), "differs");
        } else if found.len() < bytes.len() {
            self.differs(end, "ends too early");
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Upload for ComparedFile {
    fn complete(mut self: Box<Self>, _: &Replaced) -> io::Result<()> {
        if self.expected.as_ref().is_some_and(|expected| expected.len() > self.offset) {
            self.differs(self.offset, "is too long");
        }
        let mut compared = self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        compared.nbytes = compared.nbytes.saturating_add(self.offset);
        Ok(())
    }

    fn abort_handle(&self) -> Arc<dyn Fn() + Send + Sync> {
        Arc::new(|| {})
    }
}
