//! Removal of temporary files and folders that earlier runs did not remove, after `kill -9` or a power failure.
//!
//! Each run locks the files and folders that it creates, and a lock ends with its process. The next run that writes
//! into the folder removes the unlocked ones. Every run must see the locks, so this is done only on local filesystems
//! of Linux.
//!
//! Facts: flock(2), and the magic numbers of filesystems in statfs(2).

use std::fs::File;
use std::io;
use std::path::Path;

/// Prefix of the names of temporary files and folders.
pub(crate) const TEMPORARY_PREFIX: &str = ".torch2carton-";

/// Creates a temporary file or folder and locks it, so that no other run removes it as abandoned. `open` returns the
/// file or folder to lock.
pub(crate) fn create_locked<T>(
    create: impl Fn() -> io::Result<T>,
    open: impl Fn(&T) -> io::Result<File>,
) -> io::Result<(T, File)> {
    loop {
        let temporary = create()?;
        let file = open(&temporary)?;
        if lock_created(&file) {
            return Ok((temporary, file));
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;
    use std::path::PathBuf;
    use std::sync::{Mutex, PoisonError};

    use rustix::fs::{FlockOperation, flock};
    use rustix::io::Errno;

    use super::{File, Path, TEMPORARY_PREFIX};

    /// Magic numbers of local filesystems: ext2 to ext4, XFS, Btrfs, tmpfs, F2FS, overlayfs, ZFS, bcachefs.
    const LOCAL_FILESYSTEMS: &[u64] =
        &[0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0xf2f5_2010, 0x794c_7630, 0x2fc1_2fc1, 0xca45_1a4e];

    /// Locks a file that was just created. Returns false if another run locked or removed it first.
    pub(crate) fn lock_created(file: &File) -> bool {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => file.metadata().is_ok_and(|metadata| metadata.nlink() > 0),
            Err(Errno::WOULDBLOCK) => false,
            // On a filesystem without locks, no run removes files.
            Err(_) => true,
        }
    }

    /// Removes the abandoned temporary files and folders in `folder`, except any that cannot be removed.
    pub(crate) fn remove_abandoned(folder: &Path) {
        /// Folder that was searched last, because a run can write thousands of files into one folder.
        static SEARCHED: Mutex<Option<PathBuf>> = Mutex::new(None);
        let mut searched = SEARCHED.lock().unwrap_or_else(PoisonError::into_inner);
        if searched.as_deref() == Some(folder) {
            return;
        }
        *searched = Some(folder.to_owned());
        drop(searched);
        let Ok(filesystem) = rustix::fs::statfs(folder) else { return };
        if !LOCAL_FILESYSTEMS.iter().any(|local| i128::from(*local) == i128::from(filesystem.f_type)) {
            return;
        }
        let Ok(items) = folder.read_dir() else { return };
        let temporary = |name: &OsStr| name.as_bytes().starts_with(TEMPORARY_PREFIX.as_bytes());
        for item in items.flatten().filter(|item| temporary(&item.file_name())) {
            remove_if_abandoned(&item.path());
        }
    }

    fn remove_if_abandoned(path: &Path) {
        // This program creates no links or pipes.
        let Ok(kind) = path.symlink_metadata() else { return };
        if !kind.is_file() && !kind.is_dir() {
            return;
        }
        let Ok(file) = File::open(path) else { return };
        // Locked until the file is removed, so that only one run removes it. The path may name another file by now, so
        // the inodes are compared.
        let is_free = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        let is_same = || {
            let (opened, there) = (file.metadata().ok()?, path.symlink_metadata().ok()?);
            Some((opened.dev(), opened.ino()) == (there.dev(), there.ino()))
        };
        if is_free && is_same() == Some(true) {
            let _ = if kind.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        }
    }
}

#[cfg(target_os = "linux")]
pub(crate) use linux::{lock_created, remove_abandoned};

#[cfg(not(target_os = "linux"))]
pub(crate) fn lock_created(_: &File) -> bool {
    true
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn remove_abandoned(_: &Path) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::{IfExists, OutputFile, Scratch};

    #[test]
    fn what_no_run_holds_is_removed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| folder.path().join(name);
        let names = || {
            let entries = folder.path().read_dir().expect("it exists").flatten();
            let mut names: Vec<String> =
                entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            names
        };
        std::fs::write(at(".torch2carton-left.partial"), b"x").expect("a temporary folder");
        std::fs::create_dir(at(".torch2carton-left")).expect("a temporary folder");
        std::fs::write(at(".torch2carton-left/y"), b"y").expect("a temporary folder");
        std::fs::write(at("kept"), b"z").expect("a temporary folder");
        std::os::unix::fs::symlink("kept", at(".torch2carton-link")).expect("a temporary folder");
        let output = OutputFile::create(at("out"), 0).expect("there is room");
        assert_eq!(names().len(), 3, "{:?}", names());
        // Searching another folder makes this one be searched again. Files that this run holds stay.
        let scratch = Scratch::create(folder.path()).expect("there is room");
        let elsewhere = tempfile::tempdir().expect("a temporary folder");
        remove_abandoned(elsewhere.path());
        std::fs::write(at(".torch2carton-again.partial"), b"x").expect("a temporary folder");
        remove_abandoned(folder.path());
        assert_eq!(names().len(), 4, "{:?}", names());
        assert!(scratch.path().is_dir());
        drop(scratch);
        output.commit(IfExists::Fail).expect("it is still there");
        assert_eq!(names(), [".torch2carton-link", "kept", "out"]);
    }
}
