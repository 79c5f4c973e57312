//! File that is open only while its bytes are read, because the number of open and mapped files is limited.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::file::special_file_kind;
use crate::stamp::{FileChange, FileChanged, FileStamp};
use crate::{Blob, Error, FileError, Sink, WINDOW, Window};

/// A file that is opened only when its bytes are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LazyFile {
    path: PathBuf,
    stamp: FileStamp,
}

impl LazyFile {
    /// Records the path and the current metadata of a file, without opening it.
    ///
    /// # Errors
    /// Returns an error if the file does not exist, or is not a regular file.
    pub fn find(path: &Path) -> Result<Self, FileError> {
        let kind =
            std::fs::metadata(path).map_err(|reason| FileError::Read { path: path.to_owned(), reason })?;
        if !kind.is_file() {
            return Err(FileError::NotAFile { path: path.to_owned(), what: special_file_kind(&kind) });
        }
        Ok(Self { path: path.to_owned(), stamp: FileStamp::from_metadata(&kind) })
    }
}

impl Blob for LazyFile {
    fn len(&self) -> u64 {
        self.stamp.len()
    }

    fn write_to(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot read {}: {error}", self.path.display()))
        };
        let mut file = File::open(&self.path).map_err(named)?;
        self.stamp.compare(&self.path, &file.metadata().map_err(named)?)?;
        let mut left = self.len();
        while left > 0 {
            let size = usize::try_from(left).unwrap_or(WINDOW).min(WINDOW);
            let window = Window::filled(size, |bytes| match io::Read::read_exact(&mut file, bytes) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    let found = file.metadata().map_err(named)?.len();
                    let change = FileChange::Length { expected: self.len(), found };
                    Err(FileChanged { path: self.path.clone(), change }.into())
                }
                read => Ok(read.map_err(named)?),
            })?;
            left = left.saturating_sub(size as u64);
            sink.write(window)?;
        }
        Ok(self.stamp.compare(&self.path, &file.metadata().map_err(named)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cuts the file at a path after the first window.
    struct Cut<'p>(&'p Path);

    impl Sink for Cut<'_> {
        fn write(&mut self, _: Window) -> Result<(), Error> {
            Ok(File::options().write(true).open(self.0)?.set_len(WINDOW as u64)?)
        }
    }

    #[test]
    fn a_file_that_changes_is_reported() {
        let path = std::env::temp_dir().join(format!("mapped-unopened-{}", std::process::id()));
        let write =
            |len: usize| std::fs::write(&path, vec![7; len]).expect("the temporary folder is writable");
        write(WINDOW + 5);
        let file = LazyFile::find(&path).expect("it was just written");
        let read = || {
            let mut sink: Vec<u8> = Vec::new();
            file.write_to(&mut sink).map(|()| sink.len()).map_err(|error| error.to_string())
        };
        assert_eq!(read(), Ok(WINDOW + 5));
        for found in [WINDOW + 4, 3, WINDOW + 6] {
            write(found);
            let error = read().expect_err("it changed");
            let expected = format!("changed while it was read: expected {} bytes, found {found}", WINDOW + 5);
            assert!(error.ends_with(&expected), "{error}");
        }
        // It is cut while it is read.
        write(WINDOW + 5);
        let file = LazyFile::find(&path).expect("it was just written");
        let error = file.write_to(&mut Cut(&path)).expect_err("it is cut").to_string();
        let expected = format!("changed while it was read: expected {} bytes, found {WINDOW}", WINDOW + 5);
        assert!(error.ends_with(&expected), "{error}");
        // Another file replaces it at the same path.
        std::fs::rename(&path, path.with_extension("old")).expect("it was just written");
        write(WINDOW + 5);
        let error = read().expect_err("it is another file");
        let expected = if cfg!(unix) {
            "another file has taken its place"
        } else {
            "its modification time is another one"
        };
        assert!(error.ends_with(expected), "{error}");
        std::fs::remove_file(path.with_extension("old")).expect("it was just written");
        std::fs::remove_file(&path).expect("it was just written");
        assert!(read().expect_err("it is gone").starts_with("cannot read "));
        assert!(LazyFile::find(&std::env::temp_dir()).is_err());
    }
}
