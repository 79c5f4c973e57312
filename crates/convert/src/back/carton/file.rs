//! A carton as an output file. `carton-writer` writes it, because it hashes each file in the same pass.

use std::cell::OnceCell;
use std::path::Path;
use std::rc::Rc;

use byte_source::{Observer, ProgressReporter};
use carton_writer::WrittenCarton;
use output::{FileContent, OutputFile};
use torchscript::ScriptArchive;

use super::layout::NonModuleFiles;
use crate::Result;

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
        // A carton is written once, so the cell is still empty.
        let _ = self.written.set(carton.write_output(output, target, work)?);
        Ok(())
    }

    fn check_unchanged(&self) -> Result<(), byte_source::Error> {
        self.layout.check_unchanged()
    }
}
