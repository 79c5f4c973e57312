//! Recognises files that this program wrote, which an output replaces by default.
//!
//! A zip file written by this program has the program's name as its archive comment. Other formats, such as
//! safetensors, have no place for a mark that keeps the bytes of the reference writer, so each output also gets an
//! extended attribute, where the filesystem supports them. The attribute records the length and the modification time
//! of the file, so it no longer matches once another program rewrites the file in place. A program that writes a new
//! file and renames it drops the attribute.
//!
//! Facts: xattr(7), open(2), and APPNOTE 4.3.16 for the end of a zip file.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::UNIX_EPOCH;

use byte_source::PRODUCER;

/// Writes the mark of this program to `file`, whose contents are complete.
pub(crate) fn mark_own_output(file: &File) {
    // Best effort: without extended attributes, only a zip comment marks the file, and other formats need
    // `IfExists::Replace`.
    if let Some(value) = file.metadata().ok().as_ref().and_then(attribute_value) {
        let _ = attribute::write(file, value.as_bytes());
    }
}

/// Returns true if this program wrote the file at `path` and no other program changed it since. Always false for a
/// symbolic link, because this program creates none.
pub fn is_own_output(path: &Path) -> bool {
    let Ok(mut file) = open_nofollow(path) else { return false };
    let Some(metadata) = file.metadata().ok().filter(Metadata::is_file) else { return false };
    has_attribute(&file, &metadata) || has_comment(&mut file).unwrap_or(false)
}

fn has_attribute(file: &File, metadata: &Metadata) -> bool {
    let Some(value) = attribute_value(metadata) else { return false };
    // One byte more than expected, so that a longer attribute value does not compare equal.
    let mut found = vec![0; value.len().saturating_add(1)];
    let len = attribute::read(file, &mut found).unwrap_or(0);
    found.get(..len) == Some(value.as_bytes())
}

/// Returns true if `file` is a zip file that ends with this program's archive comment.
fn has_comment(file: &mut File) -> io::Result<bool> {
    const END: &[u8] = b"PK\x05\x06";
    /// Offset of the comment length field in the end of central directory record.
    const COMMENT: usize = 20;
    let mut first = [0; 4];
    file.read_exact(&mut first)?;
    let len = u16::try_from(PRODUCER.len()).unwrap_or(u16::MAX).to_le_bytes();
    let comment = [&len, PRODUCER.as_bytes()].concat();
    let mut end = vec![0; comment.len().saturating_add(COMMENT)];
    let from_end = i64::try_from(end.len()).unwrap_or(i64::MAX).saturating_neg();
    file.seek(SeekFrom::End(from_end))?;
    file.read_exact(&mut end)?;
    Ok(first == *b"PK\x03\x04" && end.starts_with(END) && end.get(COMMENT..) == Some(&comment))
}

/// Formats the attribute value: the file length in bytes and the modification time in nanoseconds since 1970.
fn attribute_value(metadata: &Metadata) -> Option<String> {
    let modified = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{} {}", metadata.len(), modified.as_nanos()))
}

/// Opens the file at `path` without following a symbolic link or blocking on a pipe.
#[cfg(unix)]
fn open_nofollow(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

#[cfg(not(unix))]
fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
mod attribute {
    use std::fs::File;
    use std::io;

    use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};

    /// Attribute name, in the `user` namespace.
    const NAME: &str = "user.torch2carton";

    pub(super) fn write(file: &File, value: &[u8]) -> io::Result<()> {
        Ok(fsetxattr(file, NAME, value, XattrFlags::empty())?)
    }

    /// Reads the attribute into `value` and returns its length in bytes.
    pub(super) fn read(file: &File, value: &mut [u8]) -> io::Result<usize> {
        Ok(fgetxattr(file, NAME, value)?)
    }
}

/// Stubs for systems without extended attributes.
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
mod attribute {
    use std::fs::File;
    use std::io;

    pub(super) fn write(_: &File, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn read(_: &File, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Builds the first signature and the end of central directory record of an archive with this comment.
    fn end(comment: &str) -> Vec<u8> {
        let len = u16::try_from(comment.len()).expect("a short comment").to_le_bytes();
        [&b"PK\x03\x04PK\x05\x06"[..], &[0; 16], &len, comment.as_bytes()].concat()
    }

    #[test]
    fn an_archive_with_our_comment_is_ours() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("x");
        let is_ours = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("a temporary folder");
            is_own_output(&path)
        };
        assert!(is_ours(&end("torch2carton")));
        let mut trailing = end("torch2carton");
        trailing.push(b'\n');
        for other in [&end(""), &end("torch2cartoon"), &end("x torch2carton"), &trailing] {
            assert!(!is_ours(other), "{}", other.escape_ascii());
        }
        let whole = end("torch2carton");
        assert!(!is_ours(&whole[4..]), "no first entry");
        for len in 0..whole.len() {
            assert!(!is_ours(&whole[..len]), "{len}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_marked_file_is_ours_until_it_changes() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("x");
        let mut file = File::create(&path).expect("a temporary folder");
        file.write_all(b"abc").expect("a temporary folder");
        assert!(!is_own_output(&path));
        if attribute::write(&file, b"3 1").is_err() {
            // The filesystem has no extended attributes, such as tmpfs before Linux 6.6.
            return;
        }
        assert!(!is_own_output(&path), "another time");
        mark_own_output(&file);
        assert!(is_own_output(&path));
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
        file.set_modified(modified + std::time::Duration::from_nanos(1)).expect("it is ours");
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
