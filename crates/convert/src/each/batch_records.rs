//! Records of the outputs of earlier batches: lines of a file in each folder, and in a store, a file for each output.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use output::{OutputRecord, OutputRecords};

use crate::{BatchOutput, Error, Result};

#[derive(Debug)]
pub(crate) struct BatchRecords {
    /// True if outputs of earlier batches are skipped.
    is_resumed: bool,
    is_dry_run: bool,
    /// Records of each local folder that was looked at.
    folders: Mutex<HashMap<PathBuf, Arc<OutputRecords>>>,
}

impl BatchRecords {
    pub(crate) fn new(is_resumed: bool, is_dry_run: bool) -> Self {
        Self { is_resumed, is_dry_run, folders: Mutex::default() }
    }

    /// Returns the record of the output of an earlier batch, if such outputs are skipped.
    ///
    /// # Errors
    /// When the store of the output cannot be reached or refuses access.
    pub(crate) fn find(&self, output: &BatchOutput) -> Result<Option<OutputRecord>> {
        let path = output.path();
        if output.destination().store_of(path)?.is_some() {
            let read = || output.destination().stored_record(path);
            let read = self.is_resumed.then(read).transpose();
            return Ok(read.map_err(|reason| Error::unread_input(path, reason))?.flatten());
        }
        let records = self.folder(output.folder());
        let record = output.name().and_then(|name| records.get(name));
        Ok(record.filter(|_| self.is_resumed).cloned())
    }

    /// Adds a record, and does without if it cannot be written: an output without a record is made again.
    pub(crate) fn add(output: &BatchOutput, record: &OutputRecord) {
        let _ = match output.destination().store_of(output.path()) {
            Ok(Some(_)) => output.destination().store_record(output.path(), record).ok(),
            _ => OutputRecords::append(output.folder(), record).ok(),
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
