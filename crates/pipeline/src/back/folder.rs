//! A folder that a back end fills: the files of a model, and the documents next to them.

use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use safetensors_format::is_of_model;
use store::{IfExists, Output};

use super::Job;
use crate::{Error, InvalidOption, Result};

/// The documents of a model, not written yet.
#[derive(Debug, Default)]
pub(super) struct Documents {
    /// Those that are made: where, and their text.
    texts: Vec<(PathBuf, String)>,
    /// Those that are copied: from, to.
    copies: Vec<(PathBuf, PathBuf)>,
}

impl Documents {
    /// The documents next to the checkpoint, and the one that the model gets in place of one of them. Those that are in the
    /// folder already stay.
    pub(super) fn find(job: &Job<'_>) -> Result<Self> {
        let (companions, _) = sources::companions(&job.sources.path)?;
        let wanted = companions.into_iter().filter(|(name, _)| !job.is_replaced(name));
        let copies = wanted.map(|(name, from)| (from, job.target.join(name)));
        let copies =
            copies.filter(|(from, to)| !same_file::is_same_file(from, to).unwrap_or(false)).collect();
        let texts = job.document.iter().map(|(name, text)| (job.target.join(name), text.clone())).collect();
        Ok(Self { texts, copies })
    }

    /// Adds a document that is made.
    pub(super) fn add(&mut self, path: PathBuf, text: String) {
        self.texts.push((path, text));
    }

    /// Where each of them goes.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        let paths = self.copies.iter().map(|(_, to)| to).chain(self.texts.iter().map(|(path, _)| path));
        paths.map(PathBuf::as_path)
    }

    /// Their bytes.
    pub(super) fn nbytes(&self) -> Result<u64> {
        let mut sum = 0_u64;
        for (from, _) in &self.copies {
            let len = from.metadata().map_err(|reason| Error::Io { path: from.clone(), reason })?.len();
            sum = sum.saturating_add(len);
        }
        Ok(self.texts.iter().fold(sum, |sum, (_, text)| sum.saturating_add(text.len() as u64)))
    }

    /// Writes them. They have not taken their places yet.
    pub(super) fn write(&self) -> Result<Vec<Output>> {
        let mut written = Vec::with_capacity(self.copies.len());
        for (from, to) in &self.copies {
            let bytes = std::fs::read(from).map_err(|reason| Error::Io { path: from.clone(), reason })?;
            written.push(whole(to, &bytes)?);
        }
        for (path, text) in &self.texts {
            written.push(whole(path, text.as_bytes())?);
        }
        Ok(written)
    }
}

/// A small file that is complete and has not taken its place yet.
pub(super) fn whole(path: &Path, bytes: &[u8]) -> Result<Output> {
    let mut output = Output::create(path, bytes.len() as u64)?;
    output.write_all(bytes).map_err(|reason| Error::Write { path: path.to_owned(), reason })?;
    Ok(output)
}

/// Fails if the folder, or one of the files in it, cannot be written, or if it has files of another model. Returns those of
/// earlier outputs, which [`remove`] takes away once the new files have their places.
pub(super) fn check<'p>(job: &Job<'_>, paths: impl Iterator<Item = &'p Path>) -> Result<Vec<PathBuf>> {
    let mut earlier = Vec::new();
    if !job.target.exists() {
        return Ok(earlier);
    }
    if !job.target.is_dir() {
        return Err(InvalidOption::NotAFolder { path: job.target.to_owned() }.into());
    }
    let inputs: Vec<&Path> = job.sources.inputs().collect();
    let mut new = HashSet::new();
    for path in paths {
        store::check_target(path, &inputs, job.options.if_exists)?;
        new.insert(store::file_name(path));
    }
    // `transformers` prefers one file to an index, whichever is newer.
    let io = |reason| Error::Io { path: job.target.to_owned(), reason };
    for entry in job.target.read_dir().map_err(io)? {
        let path = entry.map_err(io)?.path();
        let name = store::file_name(&path);
        if is_of_model(&name) && !new.contains(&name) {
            if !store::is_ours(&path) || job.options.if_exists == IfExists::Fail {
                return Err(Error::OtherModel { path });
            }
            earlier.push(path);
        }
    }
    Ok(earlier)
}

/// Removes files of an earlier output, unless another program changed them meanwhile.
pub(super) fn remove(earlier: &[PathBuf]) -> Result<()> {
    for path in earlier.iter().filter(|path| store::is_ours(path)) {
        std::fs::remove_file(path).map_err(|reason| Error::Write { path: path.clone(), reason })?;
    }
    Ok(())
}

/// A folder that is removed again if nothing was put into it.
pub(super) struct NewFolder<'p> {
    path: &'p Path,
    is_new: bool,
}

impl<'p> NewFolder<'p> {
    /// Creates it if there is none.
    pub(super) fn create(path: &'p Path) -> Result<Self> {
        let is_new = !path.exists();
        std::fs::create_dir_all(path)
            .map_err(|reason| Error::CreateFolder { path: path.to_owned(), reason })?;
        Ok(Self { path, is_new })
    }

    /// Keeps it.
    pub(super) fn keep(mut self) {
        self.is_new = false;
    }
}

impl Drop for NewFolder<'_> {
    fn drop(&mut self) {
        if self.is_new {
            // Fails if somebody put a file into it.
            let _ = std::fs::remove_dir(self.path);
        }
    }
}
