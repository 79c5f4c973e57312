//! Files that are read without a map.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use torch2carton::crates::byte_source;
use torch2carton::{Result, Source};

/// A file that is read by pread(2) and never mapped.
#[derive(Debug)]
pub(crate) struct UnmappedFile {
    path: PathBuf,
    file: File,
    len: u64,
    modified: Option<SystemTime>,
}

impl UnmappedFile {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// When the path cannot be opened, or is not a regular file.
    pub(crate) fn open(path: &Path) -> Result<Self, byte_source::FileError> {
        let io = |reason| byte_source::FileError::Read { path: path.to_owned(), reason };
        // The file type is checked first, because opening a named pipe would wait for a writer.
        let kind = std::fs::metadata(path).map_err(io)?;
        if !kind.is_file() {
            let what = byte_source::special_file_kind(&kind);
            return Err(byte_source::FileError::NotAFile { path: path.to_owned(), what });
        }
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        Ok(Self { path: path.to_owned(), file, len: metadata.len(), modified: metadata.modified().ok() })
    }
}

impl Source for UnmappedFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), byte_source::Error> {
        let (mut rest, mut at) = (buffer, offset);
        while !rest.is_empty() {
            match read_at(&self.file, rest, at) {
                Ok(0) => {
                    return Err(
                        io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter").into()
                    );
                }
                Ok(n) => {
                    rest = rest.get_mut(n..).unwrap_or_default();
                    at = at.saturating_add(n as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn check_unchanged(&self) -> Result<(), byte_source::Error> {
        let now = self.file.metadata()?;
        if now.len() == self.len && now.modified().ok() == self.modified {
            return Ok(());
        }
        let text = format!("{} changed while it was read", self.path.display());
        Err(io::Error::new(io::ErrorKind::InvalidData, text).into())
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
