//! Documents of a model, which are small files next to the weights.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::stream::create;
use crate::{Destination, Error, FileSums, OutputFile, Result};

/// Documents of a model, laid out but not written.
#[derive(Debug, Default)]
pub struct OutputDocuments {
    /// Generated documents: path and contents.
    made: Vec<(PathBuf, Vec<u8>)>,
    /// Copied documents: source and target path.
    copies: Vec<(PathBuf, PathBuf)>,
}

impl OutputDocuments {
    /// Adds a generated document.
    pub fn add(&mut self, path: PathBuf, contents: impl Into<Vec<u8>>) {
        self.made.push((path, contents.into()));
    }

    /// Adds a document to copy. Copies are written before generated documents.
    pub fn copy(&mut self, from: PathBuf, to: PathBuf) {
        self.copies.push((from, to));
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        let paths = self.copies.iter().map(|(_, to)| to).chain(self.made.iter().map(|(path, _)| path));
        paths.map(PathBuf::as_path)
    }

    /// Returns the total length of all documents in bytes.
    pub(crate) fn nbytes(&self) -> Result<u64> {
        let mut sum = 0_u64;
        for (from, _) in &self.copies {
            let len = from.metadata().map_err(|error| Error::from(error).in_file(from))?.len();
            sum = sum.saturating_add(len);
        }
        Ok(self.made.iter().fold(sum, |sum, (_, contents)| sum.saturating_add(contents.len() as u64)))
    }

    /// Writes all documents to temporary files, which the caller moves into place, or to uploads.
    pub(crate) fn write(&self, destination: &Destination, sums: FileSums) -> Result<Vec<OutputFile>> {
        let mut written = Vec::with_capacity(self.copies.len());
        for (from, to) in &self.copies {
            let bytes = std::fs::read(from).map_err(|error| Error::from(error).in_file(from))?;
            written.push(write_temporary(destination, (to, &bytes), sums)?);
        }
        for (path, contents) in &self.made {
            written.push(write_temporary(destination, (path, contents), sums)?);
        }
        Ok(written)
    }
}

/// Writes a complete temporary file for `path`.
fn write_temporary(
    destination: &Destination,
    (path, bytes): (&Path, &[u8]),
    sums: FileSums,
) -> Result<OutputFile> {
    let mut output = create(destination, (path, bytes.len() as u64), sums)?;
    output
        .write_all(bytes)
        .map_err(|reason| byte_source::FileError::Write { path: path.to_owned(), reason })?;
    Ok(output)
}
