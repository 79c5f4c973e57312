//! Writes all files of an output, or none.
//!
//! Each file is a temporary file, or an upload, until all files are complete and no input has changed. Documents are moved into place last,
//! because other programs look for them first.

use std::path::{Path, PathBuf};

use byte_source::{Action, Blob, Observer, ProgressReporter};

use crate::documents::OutputDocuments;
use crate::stream;
use crate::{Destination, IfExists, OutputFile, Result, WrittenFile};

/// Files of an output, laid out but not written.
#[derive(Default)]
pub struct OutputFiles<'p> {
    /// Files with weights, in the order in which they are written and moved into place.
    pub weights: Vec<PlannedFile<'p>>,
    /// Small files, moved into place after the weights.
    pub documents: OutputDocuments,
    /// Folders to create if they do not exist, outermost first.
    pub folders: Vec<PathBuf>,
    /// Files of an earlier output, removed once the new files are in place.
    pub stale_files: Vec<PathBuf>,
    /// What is computed of each file while it is written.
    pub sums: FileSums,
}

/// File with weights, laid out but not written.
pub struct PlannedFile<'p> {
    pub path: PathBuf,
    /// File name for progress messages.
    pub name: String,
    pub len: u64,
    pub content: Box<dyn FileContent + 'p>,
}

/// Content of a file with weights. Each [`Blob`] is one.
pub trait FileContent {
    /// Computes parts that must be known before the first byte is written.
    ///
    /// # Errors
    /// When a part cannot be computed, or the observer stops the work.
    fn prepare(&mut self, observer: &dyn Observer) -> Result<()> {
        let _ = observer;
        Ok(())
    }

    /// Writes the whole content to `output`, the temporary file of `target`, and reports the bytes written to `work`.
    ///
    /// # Errors
    /// When an input cannot be read, the output cannot be written, or the observer stops the work.
    fn write(&self, output: &mut OutputFile, target: &Path, work: ProgressReporter<'_>) -> Result<()>;

    /// Checks that no input besides the checkpoint's own files changed since it was opened.
    ///
    /// # Errors
    /// [`byte_source::FileChanged`], or the I/O error of the system.
    fn check_unchanged(&self) -> Result<(), byte_source::Error> {
        Ok(())
    }
}

impl<B: Blob + Sync> FileContent for B {
    fn write(&self, output: &mut OutputFile, target: &Path, work: ProgressReporter<'_>) -> Result<()> {
        stream::stream_blob(self, (output, target), work)
    }
}

impl<'p> PlannedFile<'p> {
    /// Creates a file at `path` with the content `blob`.
    pub fn new(path: PathBuf, blob: impl Blob + Sync + 'p) -> Self {
        Self { name: crate::file_name(&path), len: blob.len(), content: Box::new(blob), path }
    }
}

impl OutputFiles<'_> {
    /// Returns the paths of all files, in the order in which they are moved into place.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.weights.iter().map(|file| file.path.as_path()).chain(self.documents.paths())
    }

    /// Returns the names of all files, in the same order.
    pub fn names(&self) -> Vec<String> {
        self.paths().map(crate::file_name).collect()
    }

    /// Returns the total length of all files in bytes.
    ///
    /// # Errors
    /// When a document to be copied no longer exists.
    pub fn nbytes(&self) -> Result<u64> {
        Ok(self.documents.nbytes()?.saturating_add(self.weights_nbytes()))
    }

    fn weights_nbytes(&self) -> u64 {
        self.weights.iter().fold(0, |sum, file| sum.saturating_add(file.len))
    }
}

/// Sums of the bytes of each file.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileSums {
    pub crc32: bool,
    pub sha256: bool,
}

/// Output that is committed.
#[derive(Clone, Copy)]
pub struct CommitTarget<'t> {
    pub path: &'t Path,
    pub if_exists: IfExists,
    pub destination: &'t Destination,
}

/// Writes the files of the output `target`, and returns their paths and sums. `check_inputs` is called once everything is written, and fails if one of the
/// inputs changed meanwhile.
///
/// # Errors
/// When an input cannot be read, is damaged or changed, a file cannot be written, or `observer` stops the work. In that case
/// no file and no new folder is left.
pub fn commit(
    mut files: OutputFiles<'_>,
    target: CommitTarget<'_>,
    check_inputs: &dyn Fn() -> Result<(), byte_source::Error>,
    observer: &dyn Observer,
) -> Result<Vec<WrittenFile>> {
    let CommitTarget { path: target, if_exists, destination } = target;
    files.weights.iter_mut().try_for_each(|file| file.content.prepare(observer))?;
    // Declared before the temporary files, so that new folders are empty when they are dropped.
    let folders = files.folders.iter().map(PathBuf::as_path).chain(target.parent());
    // A store has no folders.
    let is_local = destination.store_of(target)?.is_none();
    let folders = folders.filter(|_| is_local);
    let folders = NewFolders::create(folders)?;
    let mut written: Vec<OutputFile> = Vec::with_capacity(files.weights.len());
    let (total, mut before) = (files.weights_nbytes(), 0_u64);
    for file in &files.weights {
        let mut output = stream::create(destination, (&file.path, file.len), files.sums)?;
        let work = ProgressReporter::new(observer, &file.name, Action::Write, Some(total)).resumed_at(before);
        file.content.write(&mut output, &file.path, work)?;
        before = before.saturating_add(file.len);
        written.push(output);
    }
    written.extend(files.documents.write(destination, files.sums)?);
    let unchanged = || files.weights.iter().try_for_each(|file| file.content.check_unchanged());
    check_inputs().and_then(|()| unchanged()).map_err(|reason| stream::read_error(target, reason))?;
    let mut committed = Vec::with_capacity(written.len());
    for (output, path) in written.into_iter().zip(files.paths()) {
        let (crc32, sha256) = (output.checksum(), output.sha256());
        output.commit(if_exists)?;
        committed.push(WrittenFile { path: path.to_owned(), crc32, sha256 });
    }
    remove_stale_files(&files.stale_files)?;
    folders.keep_on_drop();
    Ok(committed)
}

/// Removes the files of an earlier output, except those that another program changed meanwhile.
fn remove_stale_files(earlier: &[PathBuf]) -> Result<()> {
    for path in earlier.iter().filter(|path| crate::is_own_output(path)) {
        std::fs::remove_file(path)
            .map_err(|reason| byte_source::FileError::Write { path: path.clone(), reason })?;
    }
    Ok(())
}

/// New folders, removed on drop if they are still empty.
#[derive(Default)]
struct NewFolders<'p>(Vec<&'p Path>);

impl<'p> NewFolders<'p> {
    /// Creates the folders in `paths` that do not exist, and the folders that lead to them.
    fn create(paths: impl Iterator<Item = &'p Path>) -> Result<Self> {
        let mut new = Self::default();
        for path in paths {
            let missing =
                path.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
            let mut missing: Vec<&Path> = missing.collect();
            missing.reverse();
            for folder in missing {
                // Not `create_dir`: another job of a batch may create or remove the same folders at this moment.
                std::fs::create_dir_all(folder)
                    .map_err(|reason| byte_source::FileError::Create { path: folder.to_owned(), reason })?;
                new.0.push(folder);
            }
        }
        Ok(new)
    }

    fn keep_on_drop(mut self) {
        self.0.clear();
    }
}

impl Drop for NewFolders<'_> {
    fn drop(&mut self) {
        for path in self.0.iter().rev() {
            // Fails if another program put a file into the folder.
            let _ = std::fs::remove_dir(path);
        }
    }
}
