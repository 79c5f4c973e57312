//! Atomic writes of local files: written next to the target, synced unless the caller does without, then renamed.
//!
//! Facts: rename(2), fsync(2), syncfs(2), statvfs(3), fallocate(2).

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use byte_source::FileError;
use tempfile::{Builder, NamedTempFile, TempDir};

use crate::abandoned::{TEMPORARY_PREFIX, create_locked, remove_abandoned};
use crate::direct::DirectWriter;
use crate::mark::{is_own_output, mark_own_output, record_own_output};
use crate::permissions::{self, Permissions};
use crate::unfinished::RegisteredPath;
use crate::writeback::Writeback;
use crate::{Error, IfExists, Problem, RemoteAddress, Result, check_system_name, parent_folder};

/// Bytes of a file that is written past the page cache. Smaller ones are likely to be read again while they are in it.
const DIRECT_MIN: u64 = 1 << 30;

/// Checks that `target` may be written: it must not be a folder, a device, one of `inputs` by any path or link, or a
/// file that `if_exists` keeps.
///
/// # Errors
/// [`Problem::RemoteOutput`], [`Problem::WindowsName`], [`Problem::NoFolder`], [`Problem::IsFolder`], [`Problem::SameFile`], [`Problem::NotAFile`], [`Problem::Exists`] or
/// [`Problem::NotOwnOutput`].
pub fn check_target(target: &Path, inputs: &[&Path], if_exists: IfExists) -> Result<()> {
    let path = || target.to_owned();
    if RemoteAddress::from_path(target).is_some() {
        return Err(Problem::RemoteOutput { path: path() }.into());
    }
    check_system_name(target)?;
    // Folders that do not exist are created with the output.
    let existing = target.ancestors().skip(1).find(|folder| folder.exists());
    if let Some(folder) = existing.filter(|folder| !folder.is_dir()) {
        return Err(Problem::NoFolder { path: path(), folder: folder.to_owned() }.into());
    }
    // A dangling symbolic link counts as an existing target.
    let Ok(kind) = target.metadata().or_else(|_| target.symlink_metadata()) else { return Ok(()) };
    if kind.is_dir() {
        return Err(Problem::IsFolder { path: path() }.into());
    }
    let is_target = |input: &Path| same_file::is_same_file(target, input).unwrap_or(false);
    if let Some(input) = inputs.iter().find(|input| is_target(input)) {
        return Err(Problem::SameFile { output: path(), input: input.to_path_buf() }.into());
    }
    if !kind.is_file() && !kind.is_symlink() {
        return Err(Problem::NotAFile { path: path(), what: byte_source::special_file_kind(&kind) }.into());
    }
    match if_exists {
        IfExists::Fail => Err(Problem::Exists { path: path() }.into()),
        IfExists::ReplaceOwn if !is_own_output(target) => Err(Problem::NotOwnOutput { path: path() }.into()),
        IfExists::ReplaceOwn | IfExists::Replace => Ok(()),
    }
}

/// Temporary file next to its target, renamed to the target when it is committed.
#[derive(Debug)]
pub(crate) struct LocalOutput {
    // Fields drop in this order, so the file is removed while its path is still registered.
    file: NamedTempFile,
    unfinished: RegisteredPath,
    target: PathBuf,
    /// Bytes that the file was expected to have, for which space was reserved.
    needed: u64,
    /// Bytes written so far.
    written: u64,
    /// Writes a large file.
    direct: Option<DirectWriter>,
    /// Is used without `direct`.
    writeback: Writeback,
    /// True if the commit waits until the disk has the file.
    is_synced: bool,
}

impl LocalOutput {
    /// Creates the temporary file next to `target`, in a folder with at least `needed` bytes free. Without `is_synced`, the file is
    /// written into the page cache, and the commit does not wait for the disk.
    ///
    /// # Errors
    /// [`Problem::WindowsName`], [`Problem::NoSpace`], or [`Problem::CreateIn`] when the folder cannot be written.
    pub(crate) fn create(target: PathBuf, needed: u64, is_synced: bool) -> Result<Self> {
        check_system_name(&target)?;
        let parent = parent_folder(&target);
        std::fs::create_dir_all(parent).map_err(|error| cannot_create(parent, &error))?;
        remove_abandoned(parent);
        require_free_space(needed, parent)?;
        let mode = Permissions::from_replaced(&target).map_or(permissions::NEW, Permissions::while_written);
        let make = || {
            permissions::with_mode(Builder::new().prefix(TEMPORARY_PREFIX).suffix(".partial"), mode)
                .tempfile_in(parent)
        };
        let create = || create_locked(make, |file| file.as_file().try_clone());
        let ((file, held), unfinished) = RegisteredPath::register(create, |(file, _)| file.path())
            .map_err(|error| cannot_create(parent, &error))?;
        // The lock belongs to the open file description, which `file` shares.
        drop(held);
        let is_direct = is_synced && needed >= DIRECT_MIN;
        let direct = if is_direct { DirectWriter::start(file.as_file()) } else { None };
        reserve(file.as_file(), needed, direct.is_some());
        let writeback = Writeback::default();
        Ok(Self { file, unfinished, target, needed, written: 0, direct, writeback, is_synced })
    }

    /// Syncs the file, renames it to the target and syncs the folder; if it is not to be synced, renames it. A file that is replaced
    /// passes its permissions on.
    ///
    /// # Errors
    /// [`FileError::Write`] when the file cannot be synced or renamed, [`Problem::Exists`] or [`Problem::NotOwnOutput`] when the
    /// target exists by now and `if_exists` does not allow to replace it.
    pub(crate) fn commit(mut self, if_exists: IfExists) -> Result<()> {
        let is_marked = self.finish()?;
        let is_synced = self.is_synced;
        let synced = if is_synced { self.file.as_file().sync_all() } else { Ok(()) };
        synced.map_err(|reason| FileError::Write { path: self.target.clone(), reason })?;
        let parent = parent_folder(&self.target).to_owned();
        let target = self.target.clone();
        self.rename_to_target(if_exists)?;
        if !is_marked {
            record_own_output(&target);
        }
        // Makes the rename durable. Best effort: some filesystems cannot sync folders.
        if is_synced && let Ok(parent) = open_folder(&parent) {
            let _ = parent.sync_all();
        }
        Ok(())
    }

    /// Renames the file to the target without syncing it. [`sync_folder`] then syncs all files of a folder at once, a
    /// hundred times as fast as syncing each of them.
    ///
    /// # Errors
    /// The errors of [`commit`](Self::commit).
    pub(crate) fn commit_unsynced(mut self, if_exists: IfExists) -> Result<()> {
        self.finish()?;
        self.rename_to_target(if_exists)
    }

    /// Writes what is left, frees what was reserved and not written, marks the temporary file, and gives it the permissions of the
    /// file that it replaces, if there is one. Returns false if it cannot be marked.
    fn finish(&mut self) -> Result<bool> {
        if let Some(direct) = self.direct.take() {
            direct.finish().map_err(|reason| FileError::Write { path: self.target.clone(), reason })?;
        }
        if self.needed > self.written {
            // Best effort: the bytes after the end are not part of the file.
            let _ = self.file.as_file().set_len(self.written);
        }
        // The mark comes first: a file that its owner may not write takes no extended attribute.
        let is_marked = mark_own_output(self.file.as_file());
        if let Some(permissions) = Permissions::from_replaced(&self.target) {
            permissions.set_on(self.file.as_file());
        }
        Ok(is_marked)
    }

    /// Renames the temporary file to the target, as `if_exists` allows.
    fn rename_to_target(self, if_exists: IfExists) -> Result<()> {
        let Self { file, unfinished, target, .. } = self;
        let renamed = match if_exists {
            IfExists::Replace => file.persist(&target),
            IfExists::Fail => file.persist_noclobber(&target),
            // The existing file may have appeared after `check_target`, so it is checked again.
            IfExists::ReplaceOwn => file.persist_noclobber(&target).or_else(|refused| {
                let is_missing =
                    || target.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
                // Some filesystems have no rename that refuses to replace.
                if is_own_output(&target) || is_missing() {
                    refused.file.persist(&target)
                } else {
                    Err(refused)
                }
            }),
        };
        renamed.map_err(|error| match (error.error.kind(), if_exists) {
            (io::ErrorKind::AlreadyExists, IfExists::Fail) => Error::from(Problem::Exists { path: target }),
            (io::ErrorKind::AlreadyExists, _) => Problem::NotOwnOutput { path: target }.into(),
            _ => FileError::Write { path: target, reason: error.error }.into(),
        })?;
        drop(unfinished);
        Ok(())
    }
}

impl io::Write for LocalOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = match &mut self.direct {
            Some(direct) => direct.write(bytes)?,
            None => self.file.as_file_mut().write(bytes)?,
        };
        self.written = self.written.saturating_add(count as u64);
        if self.direct.is_none() && self.is_synced {
            self.writeback.advance(self.file.as_file(), self.written);
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_file_mut().flush()
    }
}

/// Temporary folder, removed when dropped and by [`remove_unfinished`](crate::remove_unfinished).
#[derive(Debug)]
pub struct Scratch {
    // Fields drop in this order, so the folder is removed while it is still registered and locked.
    folder: TempDir,
    _unfinished: RegisteredPath,
    _held: File,
}

impl Scratch {
    /// Creates a temporary folder in `parent`.
    ///
    /// # Errors
    /// [`Problem::CreateIn`] when `parent` cannot be written.
    pub fn create(parent: &Path) -> Result<Self> {
        std::fs::create_dir_all(parent).map_err(|error| cannot_create(parent, &error))?;
        remove_abandoned(parent);
        let make = || Builder::new().prefix(TEMPORARY_PREFIX).tempdir_in(parent);
        let create = || create_locked(make, |folder| open_folder(folder.path()));
        let ((folder, held), unfinished) = RegisteredPath::register(create, |(folder, _)| folder.path())
            .map_err(|error| cannot_create(parent, &error))?;
        Ok(Self { folder, _unfinished: unfinished, _held: held })
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Syncs the filesystem of `folder`, and with it all files that were renamed into the folder. Only Linux can be asked
/// for that; other systems write the files back in their own time.
///
/// # Errors
/// [`Problem::Sync`] when the folder cannot be opened or synced.
pub fn sync_folder(folder: &Path) -> Result<()> {
    Ok(sync_filesystem(folder).map_err(|reason| Problem::Sync { folder: folder.to_owned(), reason })?)
}

/// Checks that at least `needed` bytes are free in `folder`.
///
/// # Errors
/// [`Problem::NoSpace`] when fewer bytes are free, [`Problem::FreeSpace`] when the system does not report the free space.
pub fn require_free_space(needed: u64, folder: &Path) -> Result<()> {
    let free = free_space(folder)?;
    if needed > free {
        return Err(Problem::NoSpace { needed, free, folder: folder.to_owned() }.into());
    }
    Ok(())
}

/// Returns the number of bytes in `folder` that this user may fill.
///
/// # Errors
/// [`Problem::FreeSpace`] when the system does not report the free space.
pub fn free_space(folder: &Path) -> Result<u64> {
    Ok(available_bytes(folder).map_err(|reason| Problem::FreeSpace { folder: folder.to_owned(), reason })?)
}

fn cannot_create(folder: &Path, error: &io::Error) -> Error {
    Problem::CreateIn { folder: folder.to_owned(), kind: error.kind() }.into()
}

#[cfg(not(windows))]
fn open_folder(folder: &Path) -> io::Result<File> {
    File::open(folder)
}

/// Opens a folder, for which Windows wants to be told that it may be one.
#[cfg(windows)]
fn open_folder(folder: &Path) -> io::Result<File> {
    use std::os::windows::fs::OpenOptionsExt;
    const FILE_FLAG_BACKUP_SEMANTICS: u32 = 0x0200_0000;
    File::options().read(true).custom_flags(FILE_FLAG_BACKUP_SEMANTICS).open(folder)
}

#[cfg(target_os = "linux")]
fn sync_filesystem(folder: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(folder)?)?)
}

#[cfg(not(target_os = "linux"))]
fn sync_filesystem(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Reserves disk space for a large file, so that writing it needs no search for free blocks: that takes a third of the time in
/// the kernel. Direct writes at the same time also need the length, or wait for each other.
#[cfg(target_os = "linux")]
fn reserve(file: &File, len: u64, with_length: bool) {
    use rustix::fs::{FallocateFlags, fallocate};
    /// Smaller files are not worth a system call.
    const RESERVED_MIN: u64 = 1 << 20;
    if len >= RESERVED_MIN {
        // Best effort: not all filesystems can, and a full disk is an error of the write.
        let flags = if with_length { FallocateFlags::empty() } else { FallocateFlags::KEEP_SIZE };
        let _ = fallocate(file, flags, 0, len);
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(_: &File, _: u64, _: bool) {}

#[cfg(unix)]
fn available_bytes(folder: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(folder)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(not(unix))]
fn available_bytes(folder: &Path) -> io::Result<u64> {
    fs4::available_space(folder)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn scratch() -> TempDir {
        tempfile::tempdir().expect("a temporary folder")
    }

    /// Returns the names in a folder, without the records of systems that have no extended attributes.
    fn names(folder: &Path) -> Vec<String> {
        let entries = folder.read_dir().expect("it exists").flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name != crate::RECORDS_NAME).collect()
    }

    #[test]
    fn a_dropped_output_leaves_nothing() {
        let scratch = scratch();
        let mut output = LocalOutput::create(scratch.path().join("x"), 3, true).expect("there is room");
        output.write_all(b"abc").expect("it can be written");
        assert_eq!(names(scratch.path()).len(), 1);
        drop(output);
        assert!(names(scratch.path()).is_empty());
    }

    #[test]
    fn a_committed_output_replaces_only_where_that_is_allowed() {
        let scratch = scratch();
        let target = scratch.path().join("x");
        let all = [IfExists::Fail, IfExists::Replace, IfExists::ReplaceOwn];
        for (bytes, if_exists) in [b"one", b"two", b"six"].into_iter().zip(all) {
            let mut output = LocalOutput::create(target.clone(), 3, true).expect("there is room");
            output.write_all(bytes).expect("it can be written");
            output.commit(if_exists).expect("it can be renamed");
            assert_eq!(std::fs::read(&target).expect("it was committed"), bytes);
        }
        let error =
            LocalOutput::create(target.clone(), 0, true).and_then(|output| output.commit(IfExists::Fail));
        assert!(error.as_ref().is_err_and(|error| error.code() == "output::Exists"), "{error:?}");
        assert_eq!(names(scratch.path()), ["x"]);
    }

    #[test]
    fn an_output_that_is_not_synced_is_as_whole() {
        let scratch = scratch();
        let target = scratch.path().join("x");
        // As long as one that is written past the page cache.
        let mut output = LocalOutput::create(target.clone(), DIRECT_MIN, false).expect("there is room");
        assert!(output.direct.is_none());
        output.write_all(b"abc").expect("it can be written");
        output.commit(IfExists::Fail).expect("it can be renamed");
        assert_eq!(
            (std::fs::read(&target).expect("it is there"), names(scratch.path()).len()),
            (b"abc".to_vec(), 1)
        );
        assert!(is_own_output(&target));
    }

    #[test]
    fn what_came_after_the_check_is_not_replaced() {
        let scratch = scratch();
        let target = scratch.path().join("x");
        check_target(&target, &[], IfExists::ReplaceOwn).expect("nothing is there");
        let output = LocalOutput::create(target.clone(), 0, true).expect("there is room");
        std::fs::write(&target, b"theirs").expect("a temporary folder");
        let error = output.commit(IfExists::ReplaceOwn);
        assert!(error.as_ref().is_err_and(|error| error.code() == "output::NotOwnOutput"), "{error:?}");
        assert_eq!(std::fs::read(&target).expect("it stays"), b"theirs");
        assert_eq!(names(scratch.path()), ["x"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_are_not_replaced_unless_that_is_allowed() {
        let scratch = scratch();
        let (file, link) = (scratch.path().join("x"), scratch.path().join("link"));
        for leads_somewhere in [false, true] {
            let _ = std::fs::remove_file(&link);
            if leads_somewhere {
                let output = LocalOutput::create(file.clone(), 0, true).expect("there is room");
                output.commit(IfExists::Fail).expect("it can be renamed");
            }
            std::os::unix::fs::symlink("x", &link).expect("a temporary folder");
            let check = |if_exists| check_target(&link, &[], if_exists);
            assert!(
                check(IfExists::ReplaceOwn)
                    .as_ref()
                    .is_err_and(|error| error.code() == "output::NotOwnOutput")
            );
            assert!(check(IfExists::Fail).as_ref().is_err_and(|error| error.code() == "output::Exists"));
            assert!(check(IfExists::Replace).is_ok());
        }
    }

    #[test]
    fn targets_that_must_not_be_written_are_refused() {
        let scratch = scratch();
        let (file, link) = (scratch.path().join("x"), scratch.path().join("./x"));
        std::fs::write(&file, b"x").expect("a temporary folder");
        let check = |path: &Path, inputs: &[&Path], if_exists| check_target(path, inputs, if_exists);
        assert!(check(&file, &[], IfExists::Replace).is_ok());
        assert!(
            check(&file, &[], IfExists::ReplaceOwn)
                .as_ref()
                .is_err_and(|error| error.code() == "output::NotOwnOutput")
        );
        assert!(
            check(&file, &[], IfExists::Fail).as_ref().is_err_and(|error| error.code() == "output::Exists")
        );
        assert!(
            check(&file, &[&link], IfExists::Replace)
                .as_ref()
                .is_err_and(|error| error.code() == "output::SameFile")
        );
        assert!(
            check(scratch.path(), &[], IfExists::Replace)
                .as_ref()
                .is_err_and(|error| error.code() == "output::IsFolder")
        );
        assert!(check(&scratch.path().join("missing/deeper/x"), &[], IfExists::Replace).is_ok());
        assert!(
            check(&file.join("y/z"), &[], IfExists::Replace)
                .as_ref()
                .is_err_and(|error| error.code() == "output::NoFolder")
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn space_that_is_not_written_is_freed() {
        use std::os::unix::fs::MetadataExt;
        let scratch = scratch();
        let target = scratch.path().join("x");
        let mut output = LocalOutput::create(target.clone(), 64 << 20, true).expect("there is room");
        output.write_all(b"abc").expect("it can be written");
        output.commit(IfExists::Fail).expect("it can be renamed");
        let file = target.metadata().expect("it was committed");
        assert_eq!(file.len(), 3);
        assert!(file.blocks() < 64, "{} blocks", file.blocks());
    }

    #[test]
    fn more_than_the_disk_holds_is_refused() {
        let scratch = scratch();
        let error = LocalOutput::create(scratch.path().join("x"), u64::MAX - 1, true).map(drop);
        assert!(error.as_ref().is_err_and(|error| error.code() == "output::NoSpace"), "{error:?}");
    }
}
