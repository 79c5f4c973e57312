//! Where outputs go: into folders of this machine, and to addresses of a store.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{FileError, Replaced, Stat, Store};

use crate::stored_record::{read_record, write_record};
use crate::{Error, IfExists, OutputFile, OutputRecord, Problem, RemoteAddress, Result, check_target};

/// Where outputs go: a local path into its folder, and an address to the store, if there is one.
#[derive(Clone, Default)]
pub struct Destination {
    store: Option<Arc<dyn Store>>,
    /// True if local outputs are not synced.
    is_unsynced: bool,
}

impl fmt::Debug for Destination {
    /// Writes the same text for all of them: they do not change what is written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Destination")
    }
}

impl Destination {
    /// Creates a destination that writes outputs at addresses into `store`.
    pub fn with_store(store: Arc<dyn Store>) -> Self {
        Self { store: Some(store), ..Self::default() }
    }

    /// Does not wait until the disk has a local output: a power failure soon after its commit can damage it.
    #[must_use]
    pub fn without_sync(self) -> Self {
        Self { is_unsynced: true, ..self }
    }

    /// Returns the store of a target; `None` for a local path.
    ///
    /// # Errors
    /// [`Problem::RemoteOutput`] when the target is an address and there is no store.
    pub fn store_of(&self, target: &Path) -> Result<Option<&Arc<dyn Store>>> {
        if RemoteAddress::from_path(target).is_none() {
            return Ok(None);
        }
        let store = self.store.as_ref();
        Ok(store.map(Some).ok_or_else(|| Problem::RemoteOutput { path: target.to_owned() })?)
    }

    /// Checks that `target` may be written, as [`check_target`] does, or that what is there in the store may be replaced.
    ///
    /// # Errors
    /// Those of [`check_target`], and [`FileError::Write`] when the store does not answer.
    pub fn check_target(&self, target: &Path, inputs: &[&Path], if_exists: IfExists) -> Result<()> {
        let Some(store) = self.store_of(target)? else { return check_target(target, inputs, if_exists) };
        let address = RemoteAddress::from_path(target);
        if let Some(input) = inputs.iter().find(|input| RemoteAddress::from_path(input) == address) {
            return Err(Problem::SameFile { output: target.to_owned(), input: input.to_path_buf() }.into());
        }
        replaced(store.as_ref(), target, if_exists).map(|_| ())
    }

    /// Starts an output of `needed` bytes: a temporary file next to `target`, or an upload.
    ///
    /// # Errors
    /// Those of [`OutputFile::create`], and [`FileError::Write`] when the store refuses it.
    pub fn create(&self, target: impl Into<PathBuf>, needed: u64) -> Result<OutputFile> {
        let target = target.into();
        let Some(store) = self.store_of(&target)? else {
            let create = if self.is_unsynced { OutputFile::create_unsynced } else { OutputFile::create };
            return create(target, needed);
        };
        let upload = store.create(&target, needed);
        let upload = upload.map_err(|reason| FileError::Write { path: target.clone(), reason })?;
        Ok(OutputFile::from_upload(target, Arc::clone(store), upload))
    }

    /// Returns the record of an output in the store; `None` if there is none, and for a local path.
    ///
    /// # Errors
    /// When the service cannot be reached or refuses access.
    pub fn stored_record(&self, output: &Path) -> Result<Option<OutputRecord>, byte_source::Error> {
        let store = self.store_of(output).map_err(io::Error::other)?;
        store.map_or(Ok(None), |store| read_record(store.as_ref(), output))
    }

    /// Writes the record of an output in the store, next to it. It replaces that of an earlier run.
    ///
    /// # Errors
    /// Those of [`create`](Self::create) and [`OutputFile::commit`].
    pub fn store_record(&self, output: &Path, record: &OutputRecord) -> Result<()> {
        write_record(self, output, record)
    }
}

/// Returns what an output at `target` may replace in a store.
///
/// # Errors
/// [`Problem::Exists`] or [`Problem::NotOwnOutput`], and [`FileError::Write`] when the store does not answer.
pub(crate) fn replaced(store: &dyn Store, target: &Path, if_exists: IfExists) -> Result<Replaced> {
    let path = || target.to_owned();
    if if_exists == IfExists::Replace {
        return Ok(Replaced::Anything);
    }
    let found = store.stat(target).map_err(|reason| FileError::Write { path: path(), reason })?;
    match (found.and_then(Stat::file), if_exists) {
        (None, _) => Ok(Replaced::Nothing),
        (Some(_), IfExists::Fail) => Err(Problem::Exists { path: path() }.into()),
        (Some(file), _) if file.is_own => Ok(Replaced::Version(file)),
        (Some(_), _) => Err(Problem::NotOwnOutput { path: path() }.into()),
    }
}

pub(crate) fn upload_error(target: PathBuf, if_exists: IfExists, reason: io::Error) -> Error {
    match (reason.kind(), if_exists) {
        (io::ErrorKind::AlreadyExists, IfExists::Fail) => Problem::Exists { path: target }.into(),
        (io::ErrorKind::AlreadyExists, IfExists::ReplaceOwn) => Problem::NotOwnOutput { path: target }.into(),
        _ => FileError::Write { path: target, reason }.into(),
    }
}
