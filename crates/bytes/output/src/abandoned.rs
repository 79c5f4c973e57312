//! Removal of temporary files and folders that earlier runs did not remove, after `kill -9` or a power failure.
//!
//! Each run locks the files and folders that it creates, and a lock ends with its process. The next run that writes
//! into the folder removes the unlocked ones. Locks may not be seen by other machines, so on a filesystem that is not local,
//! a run also sets the times of its files now and then, and only what was silent for long is removed. This is done on Linux.
//!
//! Facts: flock(2), utimensat(2), and the magic numbers of filesystems in statfs(2).

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
        let file = match open(&temporary) {
            // Another run took it for abandoned before it was locked.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
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
    use std::sync::{Mutex, Once, PoisonError};
    use std::time::{Duration, SystemTime};

    use rustix::fs::{AtFlags, CWD, FlockOperation, Timespec, Timestamps, UTIME_NOW, flock, utimensat};
    use rustix::io::Errno;

    use super::{File, Path, TEMPORARY_PREFIX};
    use crate::unfinished::unfinished_paths;

    /// Time after which what gives no sign of life on a filesystem of several machines is abandoned.
    const SILENCE: Duration = Duration::from_secs(60 * 60);
    /// Interval between two signs.
    const SIGN: Duration = Duration::from_secs(5 * 60);

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

    /// Removes the temporary files and folders in `folder` that runs left which were killed, except any that cannot be removed. A folder
    /// is not searched twice in a row.
    pub fn remove_abandoned(folder: &Path) {
        /// Folder that was searched last, because a run can write thousands of files into one folder.
        static SEARCHED: Mutex<Option<PathBuf>> = Mutex::new(None);
        let mut searched = SEARCHED.lock().unwrap_or_else(PoisonError::into_inner);
        if searched.as_deref() == Some(folder) {
            return;
        }
        *searched = Some(folder.to_owned());
        drop(searched);
        let Ok(filesystem) = rustix::fs::statfs(folder) else { return };
        let is_local =
            LOCAL_FILESYSTEMS.iter().any(|local| i128::from(*local) == i128::from(filesystem.f_type));
        let mut now = None;
        if !is_local {
            give_signs_of_life();
            // By the clock of the machine that has the files.
            let probed = tempfile::tempfile_in(folder).and_then(|file| file.metadata()?.modified());
            let Ok(probed) = probed else { return };
            now = Some(probed);
        }
        let Ok(items) = folder.read_dir() else { return };
        let temporary = |name: &OsStr| name.as_bytes().starts_with(TEMPORARY_PREFIX.as_bytes());
        for item in items.flatten().filter(|item| temporary(&item.file_name())) {
            remove_if_abandoned(&item.path(), now);
        }
    }

    /// Sets the times of all temporary files and folders of this process now and then.
    fn give_signs_of_life() {
        static STARTED: Once = Once::new();
        STARTED.call_once(|| {
            let work = || loop {
                std::thread::sleep(SIGN);
                for path in unfinished_paths() {
                    give_sign_of_life(&path);
                }
            };
            // Without a thread, a file that is not written for an hour may be removed, and its output fails.
            let _ = std::thread::Builder::new().name("signs".to_owned()).spawn(work);
        });
    }

    pub(super) fn give_sign_of_life(path: &Path) {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        // The file may have been moved into place.
        let _ = utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW);
    }

    /// Removes a file or a folder that no run holds. With the time `now`, it must have been silent for long, too.
    pub(super) fn remove_if_abandoned(path: &Path, now: Option<SystemTime>) {
        // This program creates no links or pipes.
        let Ok(kind) = path.symlink_metadata() else { return };
        if !kind.is_file() && !kind.is_dir() {
            return;
        }
        let is_silent = |now: SystemTime| {
            kind.modified().is_ok_and(|last| now.duration_since(last).is_ok_and(|time| time > SILENCE))
        };
        if !now.is_none_or(is_silent) {
            return;
        }
        let Ok(file) = File::open(path) else { return };
        // Locked until the file is removed, so that only one run removes it. The path may name another file by now, so
        // the inodes are compared.
        let is_free = match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => false,
            locked => locked.is_ok() || now.is_some(),
        };
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
pub(crate) use linux::lock_created;
#[cfg(target_os = "linux")]
pub use linux::remove_abandoned;

#[cfg(not(target_os = "linux"))]
pub(crate) fn lock_created(_: &File) -> bool {
    true
}

/// Does nothing: this system does not tell which runs have ended.
#[cfg(not(target_os = "linux"))]
pub fn remove_abandoned(_: &Path) {}

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

    #[test]
    fn on_several_machines_what_was_silent_for_long_is_removed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(".torch2carton-left.partial");
        let file = File::create(&path).expect("a temporary folder");
        let now = std::time::SystemTime::now();
        let minutes = |count: u64| now - std::time::Duration::from_secs(60 * count);
        file.set_modified(minutes(50)).expect("a file");
        linux::remove_if_abandoned(&path, Some(now));
        assert!(path.exists(), "its machine may be at work");
        file.set_modified(minutes(500)).expect("a file");
        linux::give_sign_of_life(&path);
        linux::remove_if_abandoned(&path, Some(now));
        assert!(path.exists(), "its machine gave a sign");
        file.set_modified(minutes(70)).expect("a file");
        linux::remove_if_abandoned(&path, Some(now));
        assert!(!path.exists());
    }
}
