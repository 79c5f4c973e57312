//! One checkpoint of a batch.

use std::path::{Path, PathBuf};

use batch::clean_absolute;
use byte_source::Location;
use output::{parent_folder, shown_path};

use crate::ConvertOptions;

/// One checkpoint of a batch.
#[derive(Debug)]
pub(crate) struct EachInput {
    /// Its files, or the zip archive in which it is.
    pub(crate) files: Vec<Location>,
    /// Name in the archive.
    pub(super) member: Option<String>,
    /// Folder of the output below that of all outputs, for one that was found in a folder or an archive.
    pub(super) below: Option<PathBuf>,
}

impl EachInput {
    pub(super) fn given(input: Location) -> Self {
        Self { files: vec![input], member: None, below: None }
    }

    pub(super) fn below(files: Vec<Location>, below: PathBuf) -> Self {
        Self { files, member: None, below: Some(below) }
    }

    /// Returns the path that the user sees: that of the first file, with the name in it if it is an archive.
    pub(crate) fn shown(&self) -> PathBuf {
        let path = self.files.first().map_or_else(PathBuf::new, |file| shown_path(file.path()));
        match &self.member {
            Some(member) => format!("{}::{member}", path.display()).into(),
            None => path,
        }
    }

    /// Returns the absolute folder of its files.
    pub(super) fn folder(&self) -> PathBuf {
        clean_absolute(parent_folder(&self.shown()))
    }

    /// Returns the folder of its output, if it is not next to the input.
    pub(super) fn output_folder(&self, options: &ConvertOptions) -> Option<PathBuf> {
        let below = self.below.as_deref().filter(|_| !options.target.output().is_repository());
        match (&options.output, below) {
            (Some(output), below) => Some(output.join(below.unwrap_or(Path::new("")))),
            (None, Some(below)) if self.member.is_some() => {
                self.files.first().map(|archive| archive.path().with_file_name(below))
            }
            (None, _) => None,
        }
    }
}
