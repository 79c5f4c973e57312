//! Records of outputs in a store. Each is a file of its own, because a file in a store cannot be appended to, and because programs
//! that write different outputs into one folder must not wait for each other.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use byte_source::{FileError, Stat, Store};

use crate::records::RECORDS_NAME;
use crate::{Destination, IfExists, OutputRecord, Result, file_name, parent_folder};

/// Largest length in bytes of a record. A longer file is ignored.
const RECORD_MAX: u64 = 64 << 20;

/// Reads the record of the output at `output`. There is none if the file is missing, is not from this program, or cannot be parsed.
///
/// # Errors
/// When the service cannot be reached or refuses access.
pub(crate) fn read_record(
    store: &dyn Store,
    output: &Path,
) -> Result<Option<OutputRecord>, byte_source::Error> {
    let path = record_path(output);
    let found = store.stat(&path)?.and_then(Stat::file);
    if !found.is_some_and(|found| found.is_own && found.len.is_some_and(|len| len <= RECORD_MAX)) {
        return Ok(None);
    }
    let Some(source) = store.open(&[path])?.into_iter().next() else { return Ok(None) };
    let bytes = source.read_range(0..source.len().min(RECORD_MAX))?;
    Ok(serde_json::from_slice(&bytes).ok())
}

/// Writes the record of the output at `output`. A file of another program stays.
///
/// # Errors
/// When the service refuses the file, or another program wrote one at its place.
pub(crate) fn write_record(destination: &Destination, output: &Path, record: &OutputRecord) -> Result<()> {
    let path = record_path(output);
    let failed = |reason: io::Error| FileError::Write { path: path.clone(), reason };
    let text = serde_json::to_vec(record).map_err(|error| failed(error.into()))?;
    let mut file = destination.create(&path, text.len() as u64)?;
    file.write_all(&text).map_err(failed)?;
    file.commit(IfExists::ReplaceOwn)
}

fn record_path(output: &Path) -> PathBuf {
    parent_folder(output).join(RECORDS_NAME).join(format!("{}.json", file_name(output)))
}
