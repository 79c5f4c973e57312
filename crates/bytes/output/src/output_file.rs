//! One output while it is written: a temporary file of this machine, or an upload.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use byte_source::{Crc32, Sha256, Store, Upload};

use crate::destination::{replaced, upload_error};
use crate::local::LocalOutput;
use crate::unfinished::RegisteredUpload;
use crate::{FileSums, IfExists, Result};

/// Output that replaces its target when it is committed: a temporary file next to the target, or an upload to a store.
///
/// [`commit`](Self::commit) renames the temporary file to the target, or completes the upload. An output that is dropped before
/// that removes its temporary file or aborts its upload, so stopping early needs no cleanup.
/// [`remove_unfinished`](crate::remove_unfinished) does the same when a signal ends the process. After `kill -9` a file
/// `.torch2carton-*.partial` remains until the next output is created in its folder, and the parts of an upload until the service
/// removes them.
#[derive(Debug)]
pub struct OutputFile {
    medium: Medium,
    /// CRC-32 of the bytes written so far, if it is computed.
    checksum: Option<Crc32>,
    /// SHA-256 of the bytes written so far, if it is computed.
    hash: Option<Sha256>,
}

#[derive(Debug)]
enum Medium {
    Local(LocalOutput),
    Upload { target: PathBuf, store: Arc<dyn Store>, upload: Box<dyn Upload>, registered: RegisteredUpload },
}

impl OutputFile {
    /// Creates the temporary file next to `target`, in a folder with at least `needed` bytes free.
    ///
    /// # Errors
    /// [`Problem::NoSpace`](crate::Problem::NoSpace), or [`Problem::CreateIn`](crate::Problem::CreateIn) when the folder cannot be written.
    pub fn create(target: impl Into<PathBuf>, needed: u64) -> Result<Self> {
        Ok(Self {
            medium: Medium::Local(LocalOutput::create(target.into(), needed, true)?),
            checksum: None,
            hash: None,
        })
    }

    /// Creates the temporary file like [`create`](Self::create), for a commit that does not wait until the disk has the file: a
    /// power failure soon after it can damage the file.
    ///
    /// # Errors
    /// Those of [`create`](Self::create).
    pub fn create_unsynced(target: impl Into<PathBuf>, needed: u64) -> Result<Self> {
        Ok(Self {
            medium: Medium::Local(LocalOutput::create(target.into(), needed, false)?),
            checksum: None,
            hash: None,
        })
    }

    pub(crate) fn from_upload(target: PathBuf, store: Arc<dyn Store>, upload: Box<dyn Upload>) -> Self {
        let registered = RegisteredUpload::register(upload.abort_handle());
        Self { medium: Medium::Upload { target, store, upload, registered }, checksum: None, hash: None }
    }

    /// Computes these sums of all bytes that are written from now on.
    #[must_use]
    pub fn with_sums(self, sums: FileSums) -> Self {
        Self { checksum: sums.crc32.then(Crc32::default), hash: sums.sha256.then(Sha256::default), ..self }
    }

    /// Returns the CRC-32 of the bytes written so far, if it [is computed](Self::with_sums).
    pub fn checksum(&self) -> Option<u32> {
        self.checksum.clone().map(Crc32::sum)
    }

    /// Returns the SHA-256 of the bytes written so far, if it [is computed](Self::with_sums).
    pub fn sha256(&self) -> Option<[u8; 32]> {
        self.hash.clone().map(Sha256::digest)
    }

    /// Syncs the file, renames it to the target and syncs the folder, or completes the upload. A file that is replaced passes its
    /// permissions on.
    ///
    /// # Errors
    /// [`FileError::Write`](byte_source::FileError::Write) when the file cannot be synced or renamed, or the service refuses it;
    /// [`Problem::Exists`](crate::Problem::Exists) or [`Problem::NotOwnOutput`](crate::Problem::NotOwnOutput) when the target exists by now and `if_exists` does not allow to replace it.
    pub fn commit(self, if_exists: IfExists) -> Result<()> {
        self.finish(if_exists, LocalOutput::commit)
    }

    /// Renames the file to the target without syncing it. [`sync_folder`](crate::sync_folder) then syncs all files of a folder
    /// at once, a hundred times as fast as syncing each of them.
    ///
    /// # Errors
    /// The errors of [`commit`](Self::commit).
    pub fn commit_unsynced(self, if_exists: IfExists) -> Result<()> {
        self.finish(if_exists, LocalOutput::commit_unsynced)
    }

    fn finish(
        self,
        if_exists: IfExists,
        commit: impl FnOnce(LocalOutput, IfExists) -> Result<()>,
    ) -> Result<()> {
        match self.medium {
            Medium::Local(file) => commit(file, if_exists),
            Medium::Upload { target, store, upload, registered } => {
                // What is there was checked before the upload, and may have changed since.
                let replaced = replaced(store.as_ref(), &target, if_exists)?;
                upload.complete(&replaced).map_err(|reason| upload_error(target, if_exists, reason))?;
                drop(registered);
                Ok(())
            }
        }
    }
}

impl io::Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = match &mut self.medium {
            Medium::Local(file) => file.write(bytes)?,
            Medium::Upload { upload, .. } => upload.write(bytes)?,
        };
        let written = bytes.get(..count).unwrap_or_default();
        if let Some(checksum) = &mut self.checksum {
            checksum.add_bytes(written);
        }
        if let Some(hash) = &mut self.hash {
            hash.update(written);
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.medium {
            Medium::Local(file) => file.flush(),
            Medium::Upload { upload, .. } => upload.flush(),
        }
    }
}
