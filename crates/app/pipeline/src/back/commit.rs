//! Writes the files of an output: all of them, or none.
//!
//! Each file is a temporary one until all are complete and no input has changed. Documents take their places last, because
//! programs look for them first.

use std::path::{Path, PathBuf};

use byte_source::{Action, Blob, ReadError, Work};
use output::{IfExists, Output};

use super::documents::Documents;
use super::stream;
use crate::{Error, Observer, Result};

/// The files of an output, laid out and not written.
#[derive(Default)]
pub(crate) struct Files<'p> {
    /// The files with the weights, in the order in which they are written and take their places.
    pub(crate) weights: Vec<Planned<'p>>,
    /// The small files, which take their places after them.
    pub(crate) documents: Documents,
    /// The folders that are created if they do not exist, outermost first.
    pub(crate) folders: Vec<PathBuf>,
    /// The files of an earlier output that are removed once the new files have their places.
    pub(crate) earlier: Vec<PathBuf>,
}

/// A file with weights, laid out and not written.
pub(crate) struct Planned<'p> {
    pub(crate) path: PathBuf,
    /// What progress calls it.
    pub(crate) name: String,
    /// Its bytes.
    pub(crate) len: u64,
    pub(crate) content: Box<dyn Content + 'p>,
}

/// The content of a file with weights.
pub(crate) trait Content {
    /// Computes the parts that have to be known before the first byte is written.
    ///
    /// # Errors
    /// When they cannot be computed, or the observer stops the work.
    fn prepare(&mut self, observer: &dyn Observer) -> Result<()> {
        let _ = observer;
        Ok(())
    }

    /// Writes all of it to `output`, the temporary file of `target`. `work` learns how many bytes are written.
    ///
    /// # Errors
    /// When an input cannot be read, the output cannot be written, or the observer stops the work.
    fn write(&self, output: &mut Output, target: &Path, work: Work<'_>) -> Result<()>;

    /// Fails if a file besides those of the checkpoint changed since it was opened.
    ///
    /// # Errors
    /// [`ReadError::Changed`], or the error of the system.
    fn check_unchanged(&self) -> Result<(), ReadError> {
        Ok(())
    }
}

impl<B: Blob + Sync> Content for B {
    fn write(&self, output: &mut Output, target: &Path, work: Work<'_>) -> Result<()> {
        stream::write(self, (output, target), work)
    }
}

impl<'p> Planned<'p> {
    /// A file at `path` that consists of `blob`.
    pub(crate) fn new(path: PathBuf, blob: impl Blob + Sync + 'p) -> Self {
        Self { name: output::file_name(&path), len: blob.len(), content: Box::new(blob), path }
    }
}

impl Files<'_> {
    /// Where each file goes.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.weights.iter().map(|file| file.path.as_path()).chain(self.documents.paths())
    }

    /// The names of all files.
    pub(crate) fn names(&self) -> Vec<String> {
        self.paths().map(output::file_name).collect()
    }

    /// The bytes of all files.
    ///
    /// # Errors
    /// When a document that is copied is not there any more.
    pub(crate) fn nbytes(&self) -> Result<u64> {
        Ok(self.documents.nbytes()?.saturating_add(self.weights_nbytes()))
    }

    fn weights_nbytes(&self) -> u64 {
        self.weights.iter().fold(0, |sum, file| sum.saturating_add(file.len))
    }
}

/// Writes the files of the output `target`. `check_inputs` is called once everything is written: it fails if one of the
/// inputs changed meanwhile.
///
/// # Errors
/// When an input cannot be read, is damaged or changed, a file cannot be written, or `observer` stops the work. No file is
/// left then, and no new folder.
pub(crate) fn commit(
    mut files: Files<'_>,
    (target, if_exists): (&Path, IfExists),
    check_inputs: &dyn Fn() -> Result<(), ReadError>,
    observer: &dyn Observer,
) -> Result<()> {
    files.weights.iter_mut().try_for_each(|file| file.content.prepare(observer))?;
    // Dropped after the temporary files, so that a new folder is empty then.
    let folders = NewFolders::create(&files.folders)?;
    let mut written: Vec<Output> = Vec::with_capacity(files.weights.len());
    let (total, mut before) = (files.weights_nbytes(), 0_u64);
    for file in &files.weights {
        let mut output = Output::create(&file.path, file.len)?;
        let work = Work::new(observer, &file.name, Action::Write, Some(total)).after(before);
        file.content.write(&mut output, &file.path, work)?;
        before = before.saturating_add(file.len);
        written.push(output);
    }
    written.extend(files.documents.write()?);
    let unchanged = || files.weights.iter().try_for_each(|file| file.content.check_unchanged());
    check_inputs().and_then(|()| unchanged()).map_err(|reason| stream::read_error(target, reason))?;
    written.into_iter().try_for_each(|output| output.commit(if_exists)).map_err(Error::Store)?;
    remove(&files.earlier)?;
    folders.keep();
    Ok(())
}

/// Removes files of an earlier output, unless another program changed them meanwhile.
fn remove(earlier: &[PathBuf]) -> Result<()> {
    for path in earlier.iter().filter(|path| output::is_ours(path)) {
        std::fs::remove_file(path).map_err(|reason| Error::Write { path: path.clone(), reason })?;
    }
    Ok(())
}

/// Folders that are removed again if nothing was put into them.
#[derive(Default)]
struct NewFolders<'p>(Vec<&'p Path>);

impl<'p> NewFolders<'p> {
    /// Creates those of `paths`, outermost first, that do not exist.
    fn create(paths: &'p [PathBuf]) -> Result<Self> {
        let mut new = Self::default();
        for path in paths {
            if !path.exists() {
                new.0.push(path);
            }
            std::fs::create_dir_all(path)
                .map_err(|reason| Error::CreateFolder { path: path.clone(), reason })?;
        }
        Ok(new)
    }

    /// Keeps them.
    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for NewFolders<'_> {
    fn drop(&mut self) {
        for path in self.0.iter().rev() {
            // Fails if somebody put a file into it.
            let _ = std::fs::remove_dir(path);
        }
    }
}
