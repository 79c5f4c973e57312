//! The files of one checkpoint, and the checkpoint in them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{Observer, Source};
use torch_import::{Checkpoint, Container, Index, ModelSizes, Shard};

use crate::companions::{Companion, companions};
use crate::documents::Documents;
use crate::{Error, Note, Result};
use output::{file_name, folder};

/// The files of one checkpoint, found but not opened.
#[derive(Debug)]
pub struct Sources {
    /// In the order of their numbers; there is at least one.
    pub files: Vec<PathBuf>,
    /// The path that names the checkpoint as if it were one file: the file itself, or `consolidated.pth` in the folder
    /// of `consolidated.00.pth`. For a set, there need not be such a file.
    pub path: PathBuf,
    /// What was decided that a person may not expect.
    pub notes: Vec<Note>,
    /// The documents next to the files.
    pub documents: Documents,
    kind: Kind,
    /// What the only file is read from, if it is not at its path.
    source: Option<Arc<dyn Source>>,
}

/// How the files make one checkpoint.
#[derive(Debug)]
pub(crate) enum Kind {
    /// It is one file.
    Single,
    /// Meta's: most tensors are split over all files.
    ModelParallel,
    /// Each tensor is whole in one of the files, as the index at this path says.
    Indexed {
        /// The index's path.
        path: PathBuf,
        /// What it says.
        index: Index,
    },
    /// The same without an index.
    Numbered,
}

impl Sources {
    /// One file, whatever its name is.
    pub fn file(path: &Path) -> Self {
        Self::new(vec![path.to_owned()], path.to_owned(), Kind::Single)
    }

    /// A file that is read from a source. Nothing is next to it.
    pub fn source(source: Arc<dyn Source>) -> Self {
        let path = source.path().to_owned();
        Self {
            files: vec![path.clone()],
            path,
            notes: Vec::new(),
            documents: Documents::default(),
            kind: Kind::Single,
            source: Some(source),
        }
    }

    pub(crate) fn new(files: Vec<PathBuf>, path: PathBuf, kind: Kind) -> Self {
        let documents = Documents::next_to(&path);
        Self { files, path, notes: Vec::new(), documents, kind, source: None }
    }

    /// The paths from which the checkpoint is read: its files, and its index where there is one.
    pub fn inputs(&self) -> impl Iterator<Item = &Path> {
        let index = match &self.kind {
            Kind::Indexed { path, .. } => Some(path.as_path()),
            _ => None,
        };
        let files = if self.source.is_some() { &[] } else { self.files.as_slice() };
        files.iter().map(PathBuf::as_path).chain(index)
    }

    /// Opens the files.
    ///
    /// # Errors
    /// When one of them cannot be read or is not a checkpoint, or when two of them are the same file.
    pub fn open(&self) -> Result<Vec<Container>> {
        self.refuse_one_file_twice()?;
        let open = |path: &PathBuf| {
            let container = match &self.source {
                Some(source) => Container::from_source(Arc::clone(source)),
                None => Container::open(path),
            };
            container.map_err(|reason| Error::checkpoint(path, reason))
        };
        self.files.iter().map(open).collect()
    }

    /// The documents and tokenizers next to the files; see [`companions`](crate::companions).
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn companions(&self) -> Result<(Vec<Companion>, Vec<Note>)> {
        match self.source {
            Some(_) => Ok(Default::default()),
            None => companions(&self.path),
        }
    }

    /// Refuses a set in which two names lead to one file: its tensors would be merged with themselves.
    fn refuse_one_file_twice(&self) -> Result<()> {
        if self.files.len() < 2 {
            return Ok(());
        }
        let mut known = HashMap::with_capacity(self.files.len());
        for path in &self.files {
            // A file that cannot be opened is reported where it is read.
            let Ok(file) = path.canonicalize() else { continue };
            if let Some(first) = known.insert(file, path) {
                return Err(Error::OneFileTwice { first: first.clone(), second: path.clone() });
            }
        }
        Ok(())
    }

    /// Reads the opened files as one checkpoint, and returns what there is to note about them. `judge` sees each file
    /// before it is joined with the others, and can refuse it.
    ///
    /// # Errors
    /// When a file is damaged, `judge` refuses it, or the files do not fit together.
    pub fn read<E: From<Error>>(
        &self,
        containers: &[Container],
        judge: &dyn Fn(&Path, &Checkpoint) -> Result<(), E>,
    ) -> Result<(Checkpoint, Vec<Note>), E> {
        self.read_checked(containers, judge, &())
    }

    /// The same. The observer can stop the comparison of shards.
    ///
    /// # Errors
    /// The same, and [`torch_import::Error::Cancelled`] within [`Error::Set`].
    pub fn read_checked<E: From<Error>>(
        &self,
        containers: &[Container],
        judge: &dyn Fn(&Path, &Checkpoint) -> Result<(), E>,
        observer: &dyn Observer,
    ) -> Result<(Checkpoint, Vec<Note>), E> {
        let several = containers.len() > 1;
        let mut notes = self.notes.clone();
        let mut shards = Vec::with_capacity(containers.len());
        for container in containers {
            let path = container.path();
            let file = file_name(path);
            let mut checkpoint =
                Checkpoint::read(container).map_err(|reason| Error::checkpoint(path, reason))?;
            judge(path, &checkpoint)?;
            if several {
                checkpoint.left_out.name_file(&file);
            }
            for note in container.notes().iter().chain(&checkpoint.notes) {
                keep(&mut notes, several.then(|| file.clone()), note);
            }
            shards.push(Shard { file, checkpoint });
        }
        let merged = match &self.kind {
            Kind::Single | Kind::Numbered => torch_import::union(shards, None),
            Kind::Indexed { index, .. } => torch_import::union(shards, Some(index)),
            Kind::ModelParallel => {
                let sizes = match self.documents.params()? {
                    Some(text) => {
                        ModelSizes::from_json(text).map_err(|reason| Error::set(&self.path, reason))?
                    }
                    None => ModelSizes::default(),
                };
                torch_import::model_parallel(shards, &sizes, observer)
            }
        };
        let merged = merged.map_err(|reason| Error::set(&self.path, reason))?;
        merged.notes.iter().for_each(|note| keep(&mut notes, None, note));
        Ok((merged.checkpoint, notes))
    }

    /// The path that a person gives for the whole checkpoint: its file, or the folder of its files.
    pub fn root(&self) -> &Path {
        if self.is_single() { &self.path } else { folder(&self.path) }
    }

    /// Whether the checkpoint is one file.
    pub fn is_single(&self) -> bool {
        matches!(self.kind, Kind::Single)
    }
}

/// Adds a note about a file, to the same note about other files if there is one.
fn keep(notes: &mut Vec<Note>, file: Option<String>, new: &torch_import::Note) {
    let same = notes.iter_mut().find_map(|known| match known {
        Note::Container { files, note } if note == new => Some(files),
        _ => None,
    });
    match same {
        Some(files) => files.extend(file),
        None => notes.push(Note::Container { files: file.into_iter().collect(), note: new.clone() }),
    }
}
