//! One output while it is written: a temporary file of this machine, or an upload.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use byte_source::{Crc32, Sha256, Store, Upload, WINDOW, core_share};

use crate::destination::{replaced, upload_error};
use crate::local::LocalOutput;
use crate::unfinished::RegisteredUpload;
use crate::{FileSums, IfExists, Result};

/// Fewest bytes that another thread hashes while they are written: starting it takes as long as hashing about 50 kB.
const HASHED_APART: usize = WINDOW / 4;
/// Fewest cores for that thread. Fewer are busy with the other hashes of a statement.
const CORES_TO_HASH_APART: usize = 4;

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
        let Self { medium, checksum, hash } = self;
        let mut write = || {
            match medium {
                Medium::Local(file) => file.write_all(bytes)?,
                Medium::Upload { upload, .. } => upload.write_all(bytes)?,
            }
            if let Some(checksum) = checksum {
                checksum.add_bytes(bytes);
            }
            Ok(bytes.len())
        };
        match hash {
            Some(hash) if bytes.len() >= HASHED_APART && core_share() >= CORES_TO_HASH_APART => {
                std::thread::scope(|scope| {
                    scope.spawn(|| hash.update(bytes));
                    write()
                })
            }
            Some(hash) => {
                hash.update(bytes);
                write()
            }
            None => write(),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.medium {
            Medium::Local(file) => file.flush(),
            Medium::Upload { upload, .. } => upload.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::num::NonZeroUsize;

    use byte_source::set_core_share;

    use super::*;

    #[test]
    fn sums_are_those_of_the_written_bytes() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let bytes = b"bytes".repeat(HASHED_APART);
        for cores in [1, CORES_TO_HASH_APART] {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    set_core_share(NonZeroUsize::new(cores).expect("not zero"));
                    let output = OutputFile::create(folder.path().join("out"), 0).expect("a file");
                    let mut output = output.with_sums(FileSums { crc32: true, sha256: true });
                    let (first, rest) = bytes.split_at(77);
                    output.write_all(first).and_then(|()| output.write_all(rest)).expect("space");
                    let mut checksum = Crc32::default();
                    checksum.add_bytes(&bytes);
                    assert_eq!(output.checksum(), Some(checksum.sum()), "{cores}");
                    assert_eq!(output.sha256(), Some(Sha256::of(&bytes)), "{cores}");
                });
            });
        }
    }
}
