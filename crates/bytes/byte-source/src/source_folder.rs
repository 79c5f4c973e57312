//! Folders that are not on this machine, as sets of byte sources.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::{ReadError, Source};

/// Folder that is not on this machine. Its files were listed once, and are those of that moment.
pub trait SourceFolder: Debug + Send + Sync {
    /// Returns the address of the folder, for messages.
    fn path(&self) -> &Path;

    /// Returns the name of the folder, such as the one of a model.
    fn name(&self) -> String;

    /// Returns the paths of all files below the folder, with `/` between their parts, sorted.
    fn files(&self) -> &[String];

    /// Returns the length of a file in bytes, if the listing has it.
    fn len_of(&self, _file: &str) -> Option<u64> {
        None
    }

    /// Returns a text that is another one for another version of a file, such as its `ETag`, if the listing has one.
    fn version_of(&self, _file: &str) -> Option<String> {
        None
    }

    /// Opens files in parallel, in the order of `files`, which are among [`files`](Self::files).
    ///
    /// # Errors
    /// When a file does not exist or cannot be read.
    fn open(&self, files: &[&str]) -> Result<Vec<Arc<dyn Source>>, ReadError>;

    /// Reads a whole file, which has at most `limit` bytes.
    ///
    /// # Errors
    /// When the file does not exist, cannot be read, or is longer.
    fn read(&self, file: &str, limit: u64) -> Result<Bytes, ReadError> {
        let sources = self.open(&[file])?;
        let Some(source) = sources.first() else { return Ok(Bytes::new()) };
        let len = source.len();
        if len > limit {
            let reason = format!("{} has {len} bytes, more than {limit}", source.path().display());
            return Err(std::io::Error::other(reason).into());
        }
        source.read_range(0..len)
    }

    /// Returns true if there is a file of this path.
    fn contains(&self, file: &str) -> bool {
        self.files().binary_search_by(|known| known.as_str().cmp(file)).is_ok()
    }

    /// Returns the address of a file.
    fn path_of(&self, file: &str) -> PathBuf {
        self.path().join(file)
    }
}

/// Input that is not at a path of this machine.
#[derive(Clone, Debug)]
pub enum InputSource {
    /// A file, without what is next to it.
    File(Arc<dyn Source>),
    /// A folder, or one file in it.
    Folder {
        folder: Arc<dyn SourceFolder>,
        /// Name of the file at the top of the folder; `None` for the whole folder.
        file: Option<String>,
    },
}

impl From<Arc<dyn Source>> for InputSource {
    fn from(source: Arc<dyn Source>) -> Self {
        Self::File(source)
    }
}

impl InputSource {
    /// Returns the address, for messages.
    pub fn path(&self) -> PathBuf {
        match self {
            Self::File(source) => source.path().to_owned(),
            Self::Folder { folder, file: None } => folder.path().to_owned(),
            Self::Folder { folder, file: Some(file) } => folder.path_of(file),
        }
    }
}
