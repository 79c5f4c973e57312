//! Records of the outputs of earlier batches, next to the outputs: lines of a file in each folder, and in a store, a file for
//! each output.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use output::{OutputRecord, OutputRecords, parent_folder};

use crate::JobOutput;

/// Records that are next to the outputs of a batch.
#[derive(Debug)]
pub struct RecordsNextToOutputs {
    /// True if outputs of earlier batches are skipped.
    is_resumed: bool,
    is_dry_run: bool,
    /// Records of each local folder that was looked at.
    folders: Mutex<HashMap<PathBuf, Arc<OutputRecords>>>,
}

impl RecordsNextToOutputs {
    /// Creates records of which none was read. A dry run does not shorten them.
    pub fn new(is_resumed: bool, is_dry_run: bool) -> Self {
        Self { is_resumed, is_dry_run, folders: Mutex::default() }
    }

    /// Returns the record of the output of an earlier batch, if such outputs are skipped.
    ///
    /// # Errors
    /// When the store of the output cannot be reached or refuses access.
    pub fn find(&self, output: &dyn JobOutput) -> Result<Option<OutputRecord>, byte_source::Error> {
        if let Ok(Some(_)) = output.destination().store_of(output.path()) {
            let read = || output.destination().stored_record(output.path());
            return Ok(self.is_resumed.then(read).transpose()?.flatten());
        }
        let records = self.folder(parent_folder(output.path()));
        let name = output.path().file_name().and_then(|name| name.to_str());
        Ok(name.and_then(|name| records.get(name)).filter(|_| self.is_resumed).cloned())
    }

    /// Adds a record, and does without if it cannot be written: an output without a record is made again.
    pub fn add(output: &dyn JobOutput, record: &OutputRecord) {
        let _ = match output.destination().store_of(output.path()) {
            Ok(Some(_)) => output.destination().store_record(output.path(), record).ok(),
            _ => OutputRecords::append(parent_folder(output.path()), record).ok(),
        };
    }

    /// Reads the records of a folder when they are first needed, and shortens their file.
    fn folder(&self, folder: &Path) -> Arc<OutputRecords> {
        let mut known = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        let records = known.entry(folder.to_owned()).or_insert_with(|| {
            let records = OutputRecords::read(folder);
            if !self.is_dry_run {
                records.compact(folder);
            }
            Arc::new(records)
        });
        Arc::clone(records)
    }
}
