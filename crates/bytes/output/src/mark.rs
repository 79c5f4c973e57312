//! Recognises files that this program wrote, which an output replaces by default.
//!
//! Each output gets an extended attribute with the length and the modification time of the file, so it no longer matches once
//! another program changes the file. A program that writes a new file and renames it drops the attribute. Where the
//! filesystem has no extended attributes, the [records](crate::OutputRecords) of the folder have both numbers. Nothing in the
//! file counts as a mark, such as the comment of a zip archive: a program that changes the archive keeps it.
//!
//! Facts: xattr(7), open(2).

use std::fs::{File, Metadata};
use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::records::{Access, FileRecord, OutputRecord, OutputRecords, RECORDS_NAME, open_regular};
use crate::{file_name, parent_folder};

/// Names of the attributes, in the `user` namespace: the mark, and the name of the input.
const MARK: &str = "user.torch2carton";
const ORIGIN: &str = "user.torch2carton.input";
/// Longest name of a file, in bytes.
const NAME_MAX: usize = 255;

/// Writes the mark of this program to `file`, whose contents are complete. Returns false if the filesystem has no extended
/// attributes.
pub(crate) fn mark_own_output(file: &File) -> bool {
    let value = file.metadata().ok().as_ref().and_then(attribute_value);
    value.is_some_and(|value| attribute::write(file, MARK, value.as_bytes()).is_ok())
}

/// Records the output at `path` in its folder, on a filesystem without extended attributes.
pub(crate) fn record_own_output(path: &Path) {
    let (Ok(metadata), Some(name)) =
        (path.symlink_metadata(), path.file_name().and_then(|name| name.to_str()))
    else {
        return;
    };
    if name == RECORDS_NAME {
        return;
    }
    let files = vec![FileRecord::new(name, &metadata, None)];
    let record = OutputRecord { output: name.to_owned(), made_from: None, files };
    // Best effort: without a record, the output is replaced only with `IfExists::Replace`.
    let _ = OutputRecords::append(parent_folder(path), &record);
}

/// Returns true if this program wrote the file at `path` and no other program changed it since. Always false for a
/// symbolic link, because this program creates none.
pub fn is_own_output(path: &Path) -> bool {
    let Ok(file) = open_regular(path, Access::Read) else { return false };
    let Ok(metadata) = file.metadata() else { return false };
    has_attribute(&file, &metadata) || is_recorded(path, &metadata)
}

/// Notes at an output the name of the input that it was made from. Best effort: a filesystem may have no extended attributes.
pub fn note_origin(path: &Path, input: &str) {
    if let Ok(file) = open_regular(path, Access::Read) {
        let _ = attribute::write(&file, ORIGIN, input.as_bytes());
    }
}

/// Returns the name of the input that an output was made from, if this program wrote it and noted that.
pub fn noted_origin(path: &Path) -> Option<String> {
    let file = open_regular(path, Access::Read).ok().filter(|_| is_own_output(path))?;
    let mut name = vec![0; NAME_MAX];
    let len = attribute::read(&file, ORIGIN, &mut name).ok()?;
    name.truncate(len);
    String::from_utf8(name).ok()
}

fn has_attribute(file: &File, metadata: &Metadata) -> bool {
    let Some(value) = attribute_value(metadata) else { return false };
    // One byte more than expected, so that a longer attribute value does not compare equal.
    let mut found = vec![0; value.len().saturating_add(1)];
    let len = attribute::read(file, MARK, &mut found).unwrap_or(0);
    found.get(..len) == Some(value.as_bytes())
}

/// Returns true if the records of the folder have the file with its current length and modification time.
fn is_recorded(path: &Path, metadata: &Metadata) -> bool {
    let name = file_name(path);
    let records = OutputRecords::read(parent_folder(path));
    let files = records.get(&name).map(|record| record.files.as_slice()).unwrap_or_default();
    files.iter().any(|file| file.path == name && file.has_same_bytes(metadata))
}

/// Formats the attribute value: the file length in bytes and the modification time in nanoseconds since 1970.
fn attribute_value(metadata: &Metadata) -> Option<String> {
    let modified = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{} {}", metadata.len(), modified.as_nanos()))
}

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
mod attribute {
    use std::fs::File;
    use std::io;

    use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};

    pub(super) fn write(file: &File, name: &str, value: &[u8]) -> io::Result<()> {
        Ok(fsetxattr(file, name, value, XattrFlags::empty())?)
    }

    /// Reads the attribute into `value` and returns its length in bytes.
    pub(super) fn read(file: &File, name: &str, value: &mut [u8]) -> io::Result<usize> {
        Ok(fgetxattr(file, name, value)?)
    }
}

/// Stubs for systems without extended attributes.
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
mod attribute {
    use std::fs::File;
    use std::io;

    pub(super) fn write(_: &File, _: &str, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn read(_: &File, _: &str, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_file_is_ours_until_it_changes() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("x.carton");
        std::fs::write(&path, b"abc").expect("a temporary folder");
        assert!(!is_own_output(&path));
        record_own_output(&path);
        assert!(is_own_output(&path));
        let other = folder.path().join("y.carton");
        std::fs::copy(&path, &other).expect("a temporary folder");
        assert!(!is_own_output(&other), "a record is about one name");
        let file = File::options().write(true).open(&path).expect("it is ours");
        let modified = file.metadata().and_then(|it| it.modified()).expect("there");
        file.set_modified(modified + std::time::Duration::from_micros(1)).expect("it is ours");
        assert!(!is_own_output(&path), "another time");
        file.set_modified(modified).expect("it is ours");
        assert!(is_own_output(&path));
        file.set_len(4).expect("it is ours");
        file.set_modified(modified).expect("it is ours");
        assert!(!is_own_output(&path), "another length");
    }

    #[test]
    fn the_comment_of_an_archive_is_not_a_mark() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("x.carton");
        let comment = byte_source::PRODUCER.as_bytes();
        let len = u16::try_from(comment.len()).expect("a short comment").to_le_bytes();
        let archive = [&b"PK\x03\x04PK\x05\x06"[..], &[0; 16], &len, comment].concat();
        std::fs::write(&path, archive).expect("a temporary folder");
        assert!(!is_own_output(&path));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_marked_file_is_ours_until_it_changes() {
        use std::io::Write;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("x");
        let mut file = File::create(&path).expect("a temporary folder");
        file.write_all(b"abc").expect("a temporary folder");
        assert!(!is_own_output(&path));
        if attribute::write(&file, MARK, b"3 1").is_err() {
            // The filesystem has no extended attributes, such as tmpfs before Linux 6.6.
            return;
        }
        assert!(!is_own_output(&path), "another time");
        mark_own_output(&file);
        assert!(is_own_output(&path) && noted_origin(&path).is_none());
        note_origin(&path, "a.pth");
        assert_eq!(noted_origin(&path).as_deref(), Some("a.pth"));
        let renamed = folder.path().join("y");
        std::fs::rename(&path, &renamed).expect("there");
        assert!(is_own_output(&renamed));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("y", &link).expect("a temporary folder");
        assert!(!is_own_output(&link));
        let modified = file.metadata().and_then(|it| it.modified()).expect("there");
        file.write_all(b"d").expect("a temporary folder");
        file.set_modified(modified).expect("it is ours");
        assert!(!is_own_output(&renamed), "another length");
        file.set_len(3).expect("it is ours");
        file.set_modified(modified).expect("it is ours");
        assert!(is_own_output(&renamed));
        file.set_modified(modified + std::time::Duration::from_micros(1)).expect("it is ours");
        assert!(!is_own_output(&renamed), "another time");
    }

    #[cfg(unix)]
    #[test]
    fn what_is_not_a_file_is_not_ours() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert!(!is_own_output(folder.path()));
        assert!(!is_own_output(&folder.path().join("missing")));
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).expect("a pipe");
        assert!(!is_own_output(&pipe));
    }
}
