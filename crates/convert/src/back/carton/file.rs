//! A carton as an output file. `carton-writer` writes it, because it hashes each file in the same pass.

use std::cell::OnceCell;
use std::path::Path;
use std::rc::Rc;

use byte_source::{Observer, ProgressReporter};
use carton_writer::{CartonLayout, WrittenCarton};
use output::{Destination, IfExists, OutputFile, file_name};
use torchscript::ScriptArchive;

use super::layout::NonModuleFiles;
use crate::back::commit::{CommitTarget, FileContent, OutputFiles, PlannedFile, commit};
use crate::back::stream;
use crate::{Error, Result};

/// Carton written by a conversion.
pub(super) struct CartonFile<'j> {
    layout: NonModuleFiles<'j>,
    archive: ScriptArchive,
    written: Rc<OnceCell<WrittenCarton>>,
}

impl<'j> CartonFile<'j> {
    pub(super) fn new(
        layout: NonModuleFiles<'j>,
        archive: ScriptArchive,
        written: Rc<OnceCell<WrittenCarton>>,
    ) -> Self {
        Self { layout, archive, written }
    }

    /// Returns the length of the carton in bytes.
    ///
    /// # Errors
    /// When the files do not form a valid carton.
    pub(super) fn len(&self) -> Result<u64> {
        self.layout.carton(&self.archive).len()
    }
}

impl FileContent for CartonFile<'_> {
    fn prepare(&mut self, observer: &dyn Observer) -> Result<()> {
        self.layout.prepare(observer)
    }

    fn write(&self, output: &mut OutputFile, target: &Path, work: ProgressReporter<'_>) -> Result<()> {
        let carton = self.layout.carton(&self.archive);
        BorrowedCarton { carton: &carton, written: &self.written }.write(output, target, work)
    }

    fn check_unchanged(&self) -> Result<(), byte_source::Error> {
        self.layout.check_unchanged()
    }
}

/// Carton that borrows its files from the caller.
struct BorrowedCarton<'c, 'b> {
    carton: &'c CartonLayout<'b>,
    written: &'c OnceCell<WrittenCarton>,
}

impl FileContent for BorrowedCarton<'_, '_> {
    fn write(&self, output: &mut OutputFile, target: &Path, work: ProgressReporter<'_>) -> Result<()> {
        let written = self.carton.write(output, work).map_err(|error| carton_write_error(target, error))?;
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
    check_inputs: &dyn Fn() -> Result<(), byte_source::Error>,
    observer: &dyn Observer,
) -> Result<WrittenCarton> {
    let len = carton.len().map_err(|error| carton_write_error(target, error))?;
    let written = OnceCell::new();
    let content = Box::new(BorrowedCarton { carton, written: &written });
    let planned = PlannedFile { path: target.to_owned(), name: file_name(target), len, content };
    let files = OutputFiles { weights: vec![planned], ..OutputFiles::default() };
    let target = CommitTarget { path: target, if_exists, destination: &Destination::default() };
    commit(files, target, check_inputs, observer)?;
    Ok(written.into_inner().expect("a commit writes each file"))
}

/// Maps an error of the carton writer to the file that caused it: an input, or the output `target`.
fn carton_write_error(target: &Path, error: byte_source::Error) -> Error {
    match error.downcast() {
        Ok(byte_source::FileError::Output { reason, .. }) => {
            byte_source::FileError::Write { path: target.to_owned(), reason }.into()
        }
        Ok(error) => error.into(),
        Err(error) => stream::read_error(target, error),
    }
}
