//! A carton as an output file.

use std::cell::OnceCell;
use std::path::Path;

use byte_source::{FileError, Observer, ProgressReporter};
use output::{CommitTarget, Destination, FileContent, IfExists, OutputFile, OutputFiles, PlannedFile};

use crate::{CartonLayout, Error, Result, WrittenCarton};

impl CartonLayout<'_> {
    /// Writes the carton to `output`, the temporary file of `target`, as [`write`](Self::write) does.
    ///
    /// # Errors
    /// Those of [`write`](Self::write), with the file that caused it: an input, or `target`.
    pub fn write_output(
        &self,
        output: &mut OutputFile,
        target: &Path,
        work: ProgressReporter<'_>,
    ) -> Result<WrittenCarton> {
        self.write(output, work).map_err(|error| file_error(target, error))
    }
}

/// Carton that borrows its files from the caller.
struct BorrowedCarton<'c, 'b> {
    carton: &'c CartonLayout<'b>,
    written: &'c OnceCell<WrittenCarton>,
}

impl FileContent for BorrowedCarton<'_, '_> {
    fn write(&self, output: &mut OutputFile, target: &Path, work: ProgressReporter<'_>) -> Result<()> {
        let written = self.carton.write_output(output, target, work)?;
        // A carton is written once, so the cell is still empty.
        let _ = self.written.set(written);
        Ok(())
    }
}

/// Writes a carton to `target`, complete or not at all. `check_inputs` is called once everything is written, and fails if
/// one of the inputs changed meanwhile.
///
/// # Errors
/// When a source cannot be read, is damaged or changed, `target` cannot be written, or `observer` stops the work.
pub fn write_carton(
    carton: &CartonLayout<'_>,
    target: &Path,
    if_exists: IfExists,
    check_inputs: &dyn Fn() -> Result<()>,
    observer: &dyn Observer,
) -> Result<WrittenCarton> {
    let len = carton.len().map_err(|error| file_error(target, error))?;
    let written = OnceCell::new();
    let content = Box::new(BorrowedCarton { carton, written: &written });
    let planned = PlannedFile { path: target.to_owned(), name: output::file_name(target), len, content };
    let files = OutputFiles { weights: vec![planned], ..OutputFiles::default() };
    let target = CommitTarget { path: target, if_exists, destination: &Destination::default() };
    output::commit(files, target, check_inputs, observer)?;
    Ok(written.into_inner().expect("a commit writes each file"))
}

/// Names the file that caused an error: an input, or the output `target`.
fn file_error(target: &Path, error: Error) -> Error {
    match error.downcast() {
        Ok(FileError::Output { reason, .. }) => FileError::Write { path: target.to_owned(), reason }.into(),
        Ok(error) => error.into(),
        Err(error) => output::read_error(target, error),
    }
}
