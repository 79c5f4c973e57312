//! File mapped read-only: the only `unsafe` code of the workspace, apart from one call in `heap`.
//!
//! Facts: mmap(2), madvise(2) and the safety notes of the `memmap2` crate.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use memmap2::{Mmap, MmapOptions};

use crate::stamp::{FileChange, FileChanged, FileStamp};
use crate::{Error, Place, Source, WINDOW, details, slice_range};

/// Problem of a file or folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The path cannot be opened, mapped or read.
    #[error("cannot read {}: {reason}", path.display())]
    Read {
        /// Path as given by the caller.
        path: PathBuf,
        reason: io::Error,
    },
    /// A file cannot be written, synced or renamed.
    #[error("cannot write {}: {reason}", path.display())]
    Write {
        /// Path as given by the caller.
        path: PathBuf,
        reason: io::Error,
    },
    /// A folder cannot be created.
    #[error("cannot create the folder {}: {reason}", path.display())]
    Create {
        /// Path as given by the caller.
        path: PathBuf,
        reason: io::Error,
    },
    /// A writer of the caller, such as standard output, cannot be written.
    #[error("cannot write {what}: {reason}")]
    Output {
        /// What is written.
        what: &'static str,
        #[source]
        reason: io::Error,
    },
    /// The path is not a regular file.
    #[error("{} is {what}, not a file", path.display())]
    NotAFile {
        /// Path as given by the caller.
        path: PathBuf,
        /// Actual file type, with its article.
        what: &'static str,
    },
}

details! {
    FileError => FileError::place {
        Input: NotAFile;
        [reason]: Read, Write, Create, Output;
    }
}

impl FileError {
    fn place(&self) -> Place {
        match self {
            Self::Read { path, .. }
            | Self::Write { path, .. }
            | Self::Create { path, .. }
            | Self::NotAFile { path, .. } => Place::file(path),
            Self::Output { .. } => Place::default(),
        }
    }
}

/// Returns the kind of a path that is not a regular file, with its article.
pub fn special_file_kind(metadata: &std::fs::Metadata) -> &'static str {
    let kind = metadata.file_type();
    if kind.is_dir() {
        return "a folder";
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return "a named pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
    }
    if kind.is_symlink() { "a link" } else { "a device" }
}

/// A file mapped into memory, as bytes. A short file is read instead, once its bytes are asked for.
///
/// Pages are loaded when they are touched and stay resident until [`release`](Self::release). If another program
/// truncates the file, the system kills a process that touches a lost page. Therefore every walk over large data reads
/// with [`Source`], which returns an error instead, and calls [`check_unchanged`](Self::check_unchanged)
/// at its end.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    file: File,
    /// Metadata of the file when it was opened.
    stamp: FileStamp,
    /// The bytes, once they are asked for.
    map: OnceLock<Arc<FileBytes>>,
}

/// Bytes of a file: its map, or a copy of a short one. Mapping takes longer than reading it, and stops the other threads.
#[derive(Debug)]
enum FileBytes {
    Map(Mmap),
    Copy(Vec<u8>),
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Map(map) => map,
            Self::Copy(bytes) => bytes,
        }
    }
}

/// The bytes of a file, which outlive it.
struct SharedBytes(Arc<FileBytes>);

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl MappedFile {
    /// Maps the file at `path`.
    ///
    /// # Errors
    /// Returns an error if the path cannot be opened, or is not a regular file.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let opened = Self::open_lazily(path)?;
        opened.make_map().map_err(|reason| FileError::Read { path: path.to_owned(), reason })?;
        Ok(opened)
    }

    /// Opens the file at `path`, and maps it when its bytes are first asked for as a slice. What describes the tensors of a small
    /// archive is read in less time than a map takes. A file that the system cannot map is only read.
    ///
    /// # Errors
    /// Returns an error if the path cannot be opened, or is not a regular file.
    pub(crate) fn open_lazily(path: &Path) -> Result<Self, FileError> {
        let io = |reason| FileError::Read { path: path.to_owned(), reason };
        // The file type is checked first, because opening a named pipe would wait for a writer.
        let kind = std::fs::metadata(path).map_err(io)?;
        if !kind.is_file() {
            return Err(FileError::NotAFile { path: path.to_owned(), what: special_file_kind(&kind) });
        }
        Self::new(File::open(path).map_err(io)?, path).map_err(io)
    }

    /// Maps an open file, such as an unlinked temporary file. `path` is its name in messages.
    ///
    /// # Errors
    /// Returns an error if the system cannot map the file.
    pub fn from_file(file: &File, path: &Path) -> Result<Self, FileError> {
        let mapped = file.try_clone().and_then(|file| Self::new(file, path));
        let mapped = mapped.and_then(|mapped| mapped.make_map().map(|()| mapped));
        mapped.map_err(|reason| FileError::Read { path: path.to_owned(), reason })
    }

    fn new(file: File, path: &Path) -> io::Result<Self> {
        let stamp = FileStamp::from_metadata(&file.metadata()?);
        Ok(Self { path: path.to_owned(), file, stamp, map: OnceLock::new() })
    }

    fn make_map(&self) -> io::Result<()> {
        // The length is explicit, because the map must not be longer than the recorded file length.
        let len = usize::try_from(self.stamp.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let bytes = if len > COPIED {
            FileBytes::Map(map(&self.file, len)?)
        } else {
            let mut copy = vec![0; len];
            self.read_exact_at(0, &mut copy)?;
            FileBytes::Copy(copy)
        };
        self.map.get_or_init(|| Arc::new(bytes));
        Ok(())
    }

    /// Returns the path as given by the caller.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Returns all bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        self.map.get().map_or(&[], |map| map)
    }

    /// Returns all bytes of the file, which is mapped if it is not yet; `None` if it cannot be mapped.
    pub(crate) fn mapped(&self) -> Option<&[u8]> {
        if self.map.get().is_none() {
            self.make_map().ok()?;
        }
        Some(self.bytes())
    }

    /// Returns the bytes of a range of the map. A short range of a file that is not mapped yet is read, which takes less time than
    /// a map.
    pub(crate) fn share(&self, range: Range<u64>) -> Result<Bytes, Error> {
        let is_short = range.end.saturating_sub(range.start) <= WINDOW as u64;
        if range.is_empty() || self.map.get().is_none() && (is_short || self.make_map().is_err()) {
            return self.read_range(range);
        }
        let map = self.map.get().ok_or(io::ErrorKind::UnexpectedEof)?;
        let map = Bytes::from_owner(SharedBytes(Arc::clone(map)));
        Ok(map.slice_ref(slice_range(&map, &range).ok_or(io::ErrorKind::UnexpectedEof)?))
    }

    /// Returns the file's length in bytes.
    pub fn len(&self) -> u64 {
        self.stamp.len()
    }

    /// Returns true if the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buffer` with the bytes at `offset`. Does not touch the map: touching a mapped byte loads up to 2 MiB around
    /// it, so small reads far apart would fill memory.
    ///
    /// # Errors
    /// Returns an error if the bytes are not inside the file, the file cannot be read, or the file was truncated after
    /// it was opened ([`FileChanged`]).
    pub(crate) fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.len()) {
            let past = io::Error::new(io::ErrorKind::UnexpectedEof, "a range past the end of the file");
            return Err(past.into());
        }
        match io::Read::read_exact(&mut FileFrom { file: &self.file, offset }, buffer) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                // Current length of the file; the read may have ended earlier.
                let found = self.file.metadata()?.len();
                let change = FileChange::Length { expected: self.stamp.len(), found };
                Err(FileChanged { path: self.path.clone(), change }.into())
            }
            read => Ok(read.map_err(|error| {
                io::Error::new(error.kind(), format!("cannot read {}: {error}", self.path.display()))
            })?),
        }
    }

    /// Checks that the file's length and modification time have not changed since it was opened. A walk that ends with
    /// this check has read consistent bytes, unless a program reset the modification time.
    ///
    /// # Errors
    /// Returns [`FileChanged`], or an error if the system does not report the metadata.
    pub fn check_unchanged(&self) -> Result<(), Error> {
        Ok(self.stamp.compare(&self.path, &self.file.metadata()?)?)
    }

    /// Returns the pages of `range` (in bytes) to the system; touching them again reads them again. The partial blocks
    /// at both ends are released too: kept, they would add up over a large file. A file of at most 1 MiB stays in memory,
    /// because loading its pages again takes longer than opening it.
    pub fn release(&self, range: Range<usize>) {
        if let Some(FileBytes::Map(map)) = self.map.get().map(|bytes| &**bytes)
            && map.len() > NEVER_RELEASED
        {
            release(map, range);
        }
    }
}

/// Reader of a file from an offset, independent of the file's own position, which all threads share.
struct FileFrom<'f> {
    file: &'f File,
    offset: u64,
}

impl io::Read for FileFrom<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = read_at(self.file, buffer, self.offset)?;
        self.offset = self.offset.saturating_add(count as u64);
        Ok(count)
    }
}

#[cfg(unix)]
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, offset)
}

#[cfg(windows)]
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buffer, offset)
}

/// Size in bytes of the aligned block of cached pages that Linux maps around a touched page.
#[cfg(unix)]
const FAULT_AROUND: usize = 64 << 10;

/// Maximum length in bytes of a file that is read and not mapped. An allocation of this length is not a map of its own.
const COPIED: usize = 64 << 10;

/// Maximum length in bytes of a file whose pages are not released.
const NEVER_RELEASED: usize = 1 << 20;

/// Maps a file: the only mapping in the workspace.
#[expect(unsafe_code, reason = "mapping a file is what this crate is for")]
fn map(file: &File, len: usize) -> io::Result<Mmap> {
    let mut options = MmapOptions::new();
    options.len(len);
    // SAFETY: the map is read-only and private to this process's view. The remaining hazard of every
    // file mapping is another process that writes into or truncates the file: torn values are
    // harmless, since no value read from the map is trusted twice, and large reads do not go through the
    // map. A page that is gone ends the process with SIGBUS, which harms nothing but this process.
    unsafe { options.map(file) }
}

#[cfg(unix)]
#[expect(unsafe_code, reason = "MADV_DONTNEED is unsafe for private dirty pages, of which there are none")]
fn release(map: &Mmap, range: Range<usize>) {
    let start = range.start.saturating_sub(range.start % FAULT_AROUND);
    let end = range.end.checked_next_multiple_of(FAULT_AROUND).unwrap_or(range.end).min(map.len());
    if start < end {
        // SAFETY: the map is read-only and backed by a file, so dropped pages are read again with the
        // same contents; nothing was written that could be lost. A failure costs memory, not data.
        let _ = unsafe {
            let advice = memmap2::UncheckedAdvice::DontNeed;
            map.unchecked_advise_range(advice, start, end.saturating_sub(start))
        };
    }
}

/// Leaves the pages of a mapped file to Windows, which takes them when it needs memory.
#[cfg(not(unix))]
fn release(_: &Mmap, _: Range<usize>) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_an_empty_slice() {
        let path = std::env::temp_dir().join(format!("mapped-empty-{}", std::process::id()));
        std::fs::write(&path, b"").expect("the temporary folder is writable");
        let file = MappedFile::open(&path).expect("the file was just written");
        assert!(file.is_empty());
        file.read_exact_at(0, &mut []).expect("nothing to read");
        file.check_unchanged().expect("nobody wrote to it");
        std::fs::remove_file(&path).expect("the file was just written");
    }

    #[test]
    fn a_file_is_mapped_once_a_slice_is_needed() {
        let path = std::env::temp_dir().join(format!("mapped-lazily-{}", std::process::id()));
        for bytes in [&b"some bytes"[..], b""] {
            std::fs::write(&path, bytes).expect("the temporary folder is writable");
            let file = MappedFile::open_lazily(&path).expect("the file was just written");
            let mut read = vec![0; bytes.len()];
            file.read_exact_at(0, &mut read).expect("it is all there");
            assert!(read == bytes && file.len() == bytes.len() as u64 && file.map.get().is_none());
            file.release(0..bytes.len());
            assert_eq!((file.mapped(), file.bytes()), (Some(bytes), bytes));
        }
        std::fs::remove_file(&path).expect("the file was just written");
    }

    #[test]
    fn a_folder_is_rejected_by_name() {
        let error = MappedFile::open(&std::env::temp_dir()).expect_err("a folder");
        assert!(error.to_string().ends_with("is a folder, not a file"), "{error}");
    }

    #[test]
    fn released_bytes_come_back_the_same() {
        let path = std::env::temp_dir().join(format!("mapped-release-{}", std::process::id()));
        let bytes: Vec<u8> = (0..2_000_000_u32).map(|i| i.to_le_bytes()[0]).collect();
        std::fs::write(&path, &bytes).expect("the temporary folder is writable");
        let file = MappedFile::open(&path).expect("the file was just written");
        assert_eq!(file.bytes().iter().step_by(4096).count(), 489);
        file.release(10..1_900_000);
        assert_eq!(file.bytes(), bytes);
        std::fs::remove_file(&path).expect("the file was just written");
    }

    #[test]
    fn a_change_is_reported() {
        let path = std::env::temp_dir().join(format!("mapped-changed-{}", std::process::id()));
        let write = |len: usize, seconds: u64| {
            std::fs::write(&path, vec![7; len]).expect("the temporary folder is writable");
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            let file = File::options().write(true).open(&path).expect("it was just written");
            file.set_modified(time).expect("it is ours");
        };
        let change = |error: Error| error.detail::<FileChanged>().expect("a change").change;
        write(10_000, 1);
        let file = MappedFile::open(&path).expect("it was just written");
        assert!(!file.is_empty());
        let mut bytes = [0; 2000];
        file.read_exact_at(8000, &mut bytes).expect("it is all there");
        file.check_unchanged().expect("nobody wrote to it");
        assert_eq!(
            io::Error::from(file.read_exact_at(8001, &mut bytes).expect_err("past the end")).kind(),
            io::ErrorKind::UnexpectedEof
        );
        let cut = FileChange::Length { expected: 10_000, found: 4000 };
        for (len, seconds, expected) in [
            (4000, 1, cut),
            (20_000, 1, FileChange::Length { expected: 10_000, found: 20_000 }),
            (10_000, 2, FileChange::Written),
        ] {
            write(len, seconds);
            assert_eq!(change(file.check_unchanged().expect_err("it changed")), expected);
        }
        write(4000, 1);
        assert_eq!(change(file.read_exact_at(3000, &mut bytes).expect_err("it is cut")), cut);
        let mut all = Vec::new();
        let error = io::Read::read_to_end(&mut crate::SourceReader::new(&file, 0..10_000), &mut all)
            .expect_err("it is cut");
        assert_eq!(
            error.to_string(),
            format!("{} changed while it was read: expected 10000 bytes, found 4000", path.display())
        );
        std::fs::remove_file(&path).expect("it was just written");
        file.check_unchanged().expect_err("removing does not repair it");
    }
}
