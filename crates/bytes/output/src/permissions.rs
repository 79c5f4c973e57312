//! Permissions of outputs: those that the umask leaves for a new file, and the old ones for a file that is replaced.
//!
//! Facts: open(2), chmod(2), chown(2).

use std::fs::File;
use std::path::Path;

use tempfile::Builder;

/// Mode of a new file before the system applies the umask.
pub(crate) const NEW: u32 = 0o666;
/// Bits of a mode that are kept. The bits that run a file as another user or group are not.
#[cfg(unix)]
const KEPT: u32 = 0o777;
/// Bits of a mode that are about the group.
#[cfg(unix)]
const GROUP: u32 = 0o070;

/// Permissions of a file that an output replaces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permissions {
    mode: u32,
    #[cfg(unix)]
    group: u32,
}

impl Permissions {
    /// Returns the mode of the new file while it is written: the group and others have no more rights than they had on the
    /// replaced file.
    pub(crate) fn while_written(self) -> u32 {
        self.mode | 0o600
    }
}

#[cfg(unix)]
impl Permissions {
    /// Returns the permissions of the regular file at `target`; `None` if there is none.
    pub(crate) fn from_replaced(target: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let metadata = target.symlink_metadata().ok().filter(std::fs::Metadata::is_file)?;
        Some(Self { mode: metadata.mode() & KEPT, group: metadata.gid() })
    }

    /// Sets the permissions on the new file. If it cannot have the group of the replaced file, its group has no rights.
    pub(crate) fn set_on(self, file: &File) {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
        let has_group = file.metadata().is_ok_and(|metadata| metadata.gid() == self.group)
            || fchown(file, None, Some(self.group)).is_ok();
        let mode = if has_group { self.mode } else { self.mode & !GROUP };
        // Some filesystems have one mode for all files. The mode of the temporary file gives no further rights.
        let _ = file.set_permissions(std::fs::Permissions::from_mode(mode));
    }
}

#[cfg(not(unix))]
impl Permissions {
    pub(crate) fn from_replaced(_: &Path) -> Option<Self> {
        None
    }

    pub(crate) fn set_on(self, _: &File) {}
}

/// Sets the mode of a temporary file, from which the system removes the umask; temporary files are private by default.
#[cfg(unix)]
pub(crate) fn with_mode<'b, 'p, 's>(builder: &'b mut Builder<'p, 's>, mode: u32) -> &'b mut Builder<'p, 's> {
    use std::os::unix::fs::PermissionsExt;
    builder.permissions(std::fs::Permissions::from_mode(mode))
}

#[cfg(not(unix))]
pub(crate) fn with_mode<'b, 'p, 's>(builder: &'b mut Builder<'p, 's>, _: u32) -> &'b mut Builder<'p, 's> {
    builder
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use crate::{IfExists, OutputFile};

    #[test]
    fn an_output_that_replaces_a_file_keeps_its_mode() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let target = folder.path().join("x");
        let mode = || target.metadata().expect("it is there").permissions().mode() & 0o7777;
        for (old, kept) in
            [(0o600, 0o600), (0o640, 0o640), (0o666, 0o666), (0o444, 0o444), (0o755, 0o755), (0o4755, 0o755)]
        {
            for unsynced in [false, true] {
                std::fs::write(&target, b"old").expect("a temporary folder");
                std::fs::set_permissions(&target, std::fs::Permissions::from_mode(old)).expect("it is ours");
                let mut output = OutputFile::create(&target, 3).expect("there is room");
                let part = folder
                    .path()
                    .read_dir()
                    .expect("it exists")
                    .flatten()
                    .find(|entry| entry.file_name() != "x");
                let part =
                    part.expect("a temporary file").metadata().expect("it is there").permissions().mode();
                assert_eq!(part & 0o077 & !kept, 0, "{old:o}: {part:o}");
                output.write_all(b"new").expect("it can be written");
                let commit = if unsynced { OutputFile::commit_unsynced } else { OutputFile::commit };
                commit(output, IfExists::Replace).expect("it can be renamed");
                assert_eq!(mode(), kept, "{old:o}");
                assert_eq!(std::fs::read(&target).expect("its owner can read it"), b"new");
                std::fs::remove_file(&target).expect("it is ours");
            }
        }
    }
}
