//! Conversion of a batch: what its output is made from, and whether that of an earlier batch is complete.

use std::path::{Component, Path, PathBuf};

use batch::{JobOutput, record_output};
use byte_source::{Cancelled, ErrorKind, Location, Observer};
use output::{Destination, OutputRecord};

use super::made_from;
use crate::statement::write::statement_path;
use crate::{ConvertOptions, ConvertReport, PlannedConversion, Result};

/// Output of one conversion of a batch.
#[derive(Debug)]
pub struct BatchOutput {
    conversion: PlannedConversion,
    /// File or folder that only this conversion writes.
    path: PathBuf,
    /// Digest of all that the output is made from; `None` if it cannot be computed.
    made_from: Option<String>,
}

impl BatchOutput {
    /// Finds what the output of `conversion` is made from. `folder` is that of the batch's outputs, if there is one. The statement goes
    /// into the folder of statements, with the path of the output in its folder.
    pub fn new(mut conversion: PlannedConversion, folder: Option<&Path>) -> Self {
        conversion.checksums = true;
        let path = conversion.own_output();
        if let Some(statement) = &mut conversion.options.statement {
            let inside = folder.and_then(|folder| path.strip_prefix(folder).ok()).unwrap_or(&path);
            let names = inside.components().filter(|part| matches!(part, Component::Normal(_)));
            *statement = statement_path(&statement.join(names.collect::<PathBuf>()));
        }
        // An input that cannot be read is reported when it is converted.
        let made_from = made_from::made_from_digest(&conversion).ok();
        Self { conversion, path, made_from }
    }

    /// Returns the files from which the checkpoint is read.
    pub fn inputs(&self) -> impl Iterator<Item = Location> {
        self.conversion.sources.locations()
    }

    /// Converts the checkpoint, and returns a record of the output if it was written and can be recorded.
    ///
    /// # Errors
    /// Those of [`PlannedConversion::run`].
    pub fn convert(&self, observer: &dyn Observer) -> Result<(ConvertReport, Option<OutputRecord>)> {
        let report = self.conversion.run(observer)?;
        let record = if report.written { record_output(self, &report.written_files) } else { None };
        Ok((report, record))
    }

    fn is_stored(&self) -> bool {
        matches!(self.destination().store_of(&self.path), Ok(Some(_)))
    }
}

impl JobOutput for BatchOutput {
    fn path(&self) -> &Path {
        &self.path
    }

    fn destination(&self) -> &Destination {
        &self.conversion.options.destination
    }

    fn made_from(&self) -> Option<&str> {
        self.made_from.as_deref()
    }

    fn local_inputs(&self) -> Vec<&Path> {
        self.conversion.sources.inputs().collect()
    }

    /// In a store, the versions of the files are enough.
    fn is_complete(&self) -> bool {
        let ConvertOptions { statement, target, destination, .. } = &self.conversion.options;
        let is_there = |path: &PathBuf| match destination.store_of(path) {
            Ok(Some(store)) => matches!(store.stat(path), Ok(Some(_))),
            _ => path.is_file(),
        };
        statement.as_ref().is_none_or(is_there)
            && (self.is_stored() || target.output().is_complete(&self.path))
    }

    fn verify(&self, observer: &dyn Observer) -> Result<bool, Cancelled> {
        let verify = || self.conversion.options.target.output().verify(&self.path, observer);
        match if self.is_stored() { Ok(true) } else { verify() } {
            Err(error) if error.kind() == ErrorKind::Cancelled => Err(Cancelled),
            verified => Ok(verified.unwrap_or(false)),
        }
    }
}
