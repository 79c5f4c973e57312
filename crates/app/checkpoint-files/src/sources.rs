//! The files of one checkpoint: opens them and reads the checkpoint.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use byte_source::{InputSource, Observer, OpenedFile, Source, SourceFolder, SourceReader};
use torch_import::{Checkpoint, Container, ModelSizes, Shard, WeightMapIndex};
use trainer_shards::{TrainerArchive, TrainerLayout};

use crate::companions::{Companion, companions, is_companion_name};
use crate::document_cache::DocumentCache;
use crate::folder_listing::folder_above;
use crate::{Error, FilesNote, Result};
use output::{Scratch, file_name, parent_folder};

/// Files of one checkpoint, found but not opened.
#[derive(Debug)]
pub struct CheckpointSources {
    /// Paths in the order of the shard numbers; at least one.
    pub files: Vec<PathBuf>,
    /// Path of the checkpoint as a single file: the file itself, or `consolidated.pth` in the folder of
    /// `consolidated.00.pth`. For a set, this file need not exist.
    pub path: PathBuf,
    /// Notes on the choice of the files.
    pub notes: Vec<FilesNote>,
    pub documents: DocumentCache,
    kind: SourcesKind,
    /// File in whose folder the documents and companions of the model are.
    documents_next_to: PathBuf,
    /// Archive that has the files of the checkpoint, if `path` is one.
    archive: Option<TrainerArchive>,
    /// Where the files are, if they are not at their paths.
    given: Option<GivenFiles>,
}

/// Files that are not at their paths.
#[derive(Debug)]
struct GivenFiles {
    input: InputSource,
    /// Companions, copied into a temporary folder when they are asked for.
    companions: OnceLock<(Scratch, Vec<Companion>)>,
}

/// Relation of the files to the checkpoint.
#[derive(Debug)]
pub(crate) enum SourcesKind {
    /// The checkpoint is one file.
    Single,
    /// Meta's model parallel files, each of which holds a slice of most tensors.
    ModelParallel,
    /// Each tensor is complete in one of the files; the index gives the file.
    Indexed { path: PathBuf, index: WeightMapIndex },
    /// Each tensor is complete in one of the numbered files, and there is no index.
    Numbered,
    /// Each rank of a training wrote parts of tensors.
    Trainer(&'static dyn TrainerLayout),
}

/// Function that reads a source as a container, such as [`Container::from_source_with_observer`].
pub type ToContainer = fn(Arc<dyn Source>, &dyn Observer) -> torch_import::Result<Container>;

impl CheckpointSources {
    /// Treats the file at `path` as a checkpoint, whatever its name is.
    pub fn file(path: &Path) -> Self {
        Self::new(vec![path.to_owned()], path.to_owned(), SourcesKind::Single)
    }

    /// Reads the checkpoint from a byte source. There are no documents or companions next to it.
    pub fn source(source: Arc<dyn Source>) -> Self {
        let path = source.path().to_owned();
        Self {
            files: vec![path.clone()],
            documents_next_to: path.clone(),
            path,
            notes: Vec::new(),
            documents: DocumentCache::default(),
            kind: SourcesKind::Single,
            given: Some(GivenFiles::new(InputSource::File(source))),
            archive: None,
        }
    }

    /// Takes the files and documents from a folder that is not on this machine, if there is one.
    pub(crate) fn of(self, folder: Option<&Arc<dyn SourceFolder>>) -> Self {
        let Some(folder) = folder else { return self };
        let input = InputSource::Folder { folder: Arc::clone(folder), file: None };
        Self { documents: DocumentCache::of_remote(folder), given: Some(GivenFiles::new(input)), ..self }
    }

    pub(crate) fn new(files: Vec<PathBuf>, path: PathBuf, kind: SourcesKind) -> Self {
        let documents = DocumentCache::next_to(&path);
        let documents_next_to = path.clone();
        Self {
            files,
            path,
            notes: Vec::new(),
            documents,
            kind,
            documents_next_to,
            given: None,
            archive: None,
        }
    }

    /// Finds the checkpoint in the archive at `path`, which may be open.
    pub(crate) fn archive(path: &Path, opened: Option<&Arc<dyn Source>>) -> Result<Self> {
        let archive = match opened {
            Some(file) => TrainerArchive::from_source(Arc::clone(file)),
            None => TrainerArchive::open(path),
        };
        let archive = archive.map_err(|reason| Error::trainer(path, reason))?;
        let kind = archive.layout.map_or(SourcesKind::Single, SourcesKind::Trainer);
        Ok(Self { archive: Some(archive), ..Self::new(vec![path.to_owned()], path.to_owned(), kind) })
    }

    /// Creates the sources of a trainer's checkpoint in `folder`.
    pub(crate) fn trainer(files: Vec<PathBuf>, folder: &Path, layout: &'static dyn TrainerLayout) -> Self {
        let path = folder.join(TRAINER_FILE);
        let documents_next_to = trainer_documents(folder).join(TRAINER_FILE);
        let documents = DocumentCache::next_to(&documents_next_to);
        let kind = SourcesKind::Trainer(layout);
        Self { documents, documents_next_to, ..Self::new(files, path, kind) }
    }

    /// Returns the paths from which the checkpoint is read: its files, and the index if there is one. Files that
    /// are not on this machine have no paths.
    pub fn inputs(&self) -> impl Iterator<Item = &Path> {
        let index = match &self.kind {
            SourcesKind::Indexed { path, .. } => Some(path.as_path()),
            _ => None,
        };
        let index = index.filter(|_| self.given.is_none());
        let files = if self.given.is_some() { &[] } else { self.files.as_slice() };
        files.iter().map(PathBuf::as_path).chain(index)
    }

    /// Opens all files as containers.
    ///
    /// # Errors
    /// When one of them cannot be read or is not a checkpoint, or when two of them are the same file.
    pub fn open(&self) -> Result<Vec<Container>> {
        self.open_with_observer(&())
    }

    /// Opens all files like [`open`](Self::open), with an observer that can stop the reading.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and [`torch_import::Error::Cancelled`] within [`Error::Checkpoint`].
    pub fn open_with_observer(&self, observer: &dyn Observer) -> Result<Vec<Container>> {
        self.open_with(&byte_source::map_file, Container::from_source_with_observer, observer)
    }

    /// Opens all files with `open_file`, for a caller that has a file open or does not map files, and makes a container of each
    /// plain file or shard with `to_container`.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and of both functions.
    pub fn open_with(
        &self,
        open_file: &dyn Fn(&Path) -> OpenedFile,
        to_container: ToContainer,
        observer: &dyn Observer,
    ) -> Result<Vec<Container>> {
        if let Some(given) = &self.given {
            return given.open(&self.files);
        }
        self.reject_duplicate_files()?;
        if let Some(archive) = &self.archive {
            return archive.containers().map_err(|reason| Error::trainer(&self.path, reason));
        }
        let open = |path: &PathBuf| {
            if let SourcesKind::Trainer(layout) = self.kind {
                return layout.open(path, open_file).map_err(|reason| Error::trainer(self.root(), reason));
            }
            let source = open_file(path).map_err(torch_import::Error::from);
            source
                .and_then(|source| to_container(source, observer))
                .map_err(|reason| Error::checkpoint(path, reason))
        };
        self.files.iter().map(open).collect()
    }

    /// Returns the documents and tokenizers next to the files, with notes on those that are left out; see
    /// [`companions`](crate::companions).
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn companions(&self) -> Result<(Vec<Companion>, Vec<FilesNote>)> {
        match &self.given {
            Some(given) => Ok((given.companions()?.to_vec(), Vec::new())),
            None => companions(&self.documents_next_to),
        }
    }

    /// Rejects a set in which two paths lead to one file: its tensors would be merged with themselves.
    fn reject_duplicate_files(&self) -> Result<()> {
        if self.files.len() < 2 {
            // Resolving a path takes a system call for each of its folders.
            return Ok(());
        }
        let mut known = HashMap::with_capacity(self.files.len());
        for path in &self.files {
            // A file that cannot be resolved is reported when it is opened.
            let Ok(file) = path.canonicalize() else { continue };
            if let Some(first) = known.insert(file, path) {
                return Err(Error::SameFileTwice { first: first.clone(), second: path.clone() });
            }
        }
        Ok(())
    }

    /// Reads the opened files as one checkpoint, and returns it with all notes. `judge` receives each file's checkpoint
    /// before it is merged with the others, and can reject it.
    ///
    /// # Errors
    /// When a file is damaged, `judge` rejects it, or the files do not fit together.
    pub fn read<E: From<Error>>(
        &self,
        containers: &[Container],
        judge: &dyn Fn(&Path, &Checkpoint) -> Result<(), E>,
    ) -> Result<(Checkpoint, Vec<FilesNote>), E> {
        self.read_with_observer(containers, judge, &())
    }

    /// Reads the opened files like [`read`](Self::read), with an observer that can stop the reading and the comparison of shards.
    ///
    /// # Errors
    /// Those of [`read`](Self::read), and [`torch_import::Error::Cancelled`] within [`Error::Checkpoint`] or
    /// [`Error::InconsistentSet`].
    pub fn read_with_observer<E: From<Error>>(
        &self,
        containers: &[Container],
        judge: &dyn Fn(&Path, &Checkpoint) -> Result<(), E>,
        observer: &dyn Observer,
    ) -> Result<(Checkpoint, Vec<FilesNote>), E> {
        let several = containers.len() > 1;
        let mut notes = self.notes.clone();
        if let SourcesKind::Trainer(layout) = self.kind {
            let joined = layout.join(containers, observer);
            let joined = joined.map_err(|reason| Error::trainer(self.root(), reason))?;
            judge(self.root(), &joined.checkpoint)?;
            notes.push(FilesNote::Trainer(joined.summary));
            let of_files = containers.iter().flat_map(Container::notes);
            of_files
                .chain(&joined.checkpoint.notes)
                .for_each(|note| add_container_note(&mut notes, None, note));
            return Ok((joined.checkpoint, notes));
        }
        let mut shards = Vec::with_capacity(containers.len());
        for container in containers {
            let path = container.path();
            let file = file_name(path);
            let mut checkpoint = Checkpoint::read_with_observer(container, observer)
                .map_err(|reason| Error::checkpoint(path, reason))?;
            judge(path, &checkpoint)?;
            if several {
                checkpoint.left_out.name_file(&file);
            }
            for note in container.notes().iter().chain(&checkpoint.notes) {
                add_container_note(&mut notes, several.then(|| file.clone()), note);
            }
            shards.push(Shard { file, checkpoint });
        }
        let merged = match &self.kind {
            SourcesKind::Single | SourcesKind::Numbered | SourcesKind::Trainer(_) => {
                torch_import::merge_whole_tensors(shards, None)
            }
            SourcesKind::Indexed { index, .. } => torch_import::merge_whole_tensors(shards, Some(index)),
            SourcesKind::ModelParallel => {
                let sizes = match self.documents.params()? {
                    Some(text) => ModelSizes::from_json(text)
                        .map_err(|reason| Error::inconsistent_set(&self.path, reason))?,
                    None => ModelSizes::default(),
                };
                torch_import::merge_model_parallel(shards, &sizes, observer)
            }
        };
        let merged = merged.map_err(|reason| Error::inconsistent_set(&self.path, reason))?;
        merged.notes.iter().for_each(|note| add_container_note(&mut notes, None, note));
        Ok((merged.checkpoint, notes))
    }

    /// Returns the path that stands for the whole checkpoint in messages: its file, or the folder of its files.
    pub fn root(&self) -> &Path {
        if self.is_single() || self.archive.is_some() { &self.path } else { parent_folder(&self.path) }
    }

    /// Returns the first file of a trainer's checkpoint that has a pickle; `None` for other checkpoints.
    pub fn trainer_pickle(&self) -> Option<&Path> {
        if !matches!(self.kind, SourcesKind::Trainer(_)) || self.archive.is_some() {
            return None;
        }
        let is_parts = |path: &Path| path.extension().is_some_and(|extension| extension == "distcp");
        self.files.iter().map(PathBuf::as_path).find(|path| !is_parts(path))
    }

    /// Returns true if each rank of a training wrote a part of the checkpoint.
    pub fn is_of_trainer(&self) -> bool {
        matches!(self.kind, SourcesKind::Trainer(_))
    }

    /// Returns true if the checkpoint is a single file.
    pub fn is_single(&self) -> bool {
        matches!(self.kind, SourcesKind::Single)
    }
}

impl GivenFiles {
    fn new(input: InputSource) -> Self {
        Self { input, companions: OnceLock::new() }
    }

    fn open(&self, files: &[PathBuf]) -> Result<Vec<Container>> {
        let sources = match &self.input {
            InputSource::File(source) => vec![Arc::clone(source)],
            InputSource::Folder { folder, .. } => {
                let names: Vec<String> = files.iter().map(|path| file_name(path)).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                folder.open(&names).map_err(|reason| Error::remote(folder.path(), reason))?
            }
        };
        let open = |(source, path): (Arc<dyn Source>, &PathBuf)| {
            Container::from_source(source).map_err(|reason| Error::checkpoint(path, reason))
        };
        sources.into_iter().zip(files).map(open).collect()
    }

    /// Copies the companions into a temporary folder: an output reads them when it is written.
    fn companions(&self) -> Result<&[Companion]> {
        let InputSource::Folder { folder, .. } = &self.input else { return Ok(&[]) };
        if let Some((_, companions)) = self.companions.get() {
            return Ok(companions);
        }
        let names: Vec<&str> =
            folder.files().iter().map(String::as_str).filter(|name| is_companion_name(name)).collect();
        let remote = |reason| Error::remote(folder.path(), reason);
        let sources = folder.open(&names).map_err(remote)?;
        let temporary = std::env::temp_dir();
        // Unlike other temporary folders, it does not outlive a signal.
        let local = Scratch::create(&temporary)
            .map_err(|reason| Error::Io { path: temporary, reason: std::io::Error::other(reason) })?;
        let mut companions = Vec::with_capacity(names.len());
        for (name, source) in names.into_iter().zip(sources) {
            let path = local.path().join(name);
            let io = |reason| Error::Io { path: path.clone(), reason };
            let mut file = File::create(&path).map_err(io)?;
            let mut reader = SourceReader::new(&*source, 0..source.len());
            std::io::copy(&mut reader, &mut file).map_err(|reason| remote(reason.into()))?;
            companions.push((name.to_owned(), path));
        }
        Ok(&self.companions.get_or_init(|| (local, companions)).1)
    }
}

/// Name of the file that a trainer's folder stands for, which need not exist.
const TRAINER_FILE: &str = "checkpoint.pt";

/// Returns the folder with the documents of a model that was trained: the one of the checkpoint, `huggingface` in it, or its
/// parent.
fn trainer_documents(folder: &Path) -> PathBuf {
    let candidates = [folder.to_owned(), folder.join("huggingface"), folder_above(folder)];
    let has_documents = |folder: &&PathBuf| {
        let has = |name: &str| folder.join(name).is_file();
        has("config.json") || has("params.json")
    };
    candidates.iter().find(has_documents).cloned().unwrap_or_else(|| folder.to_owned())
}

/// Adds a note of `torch-import` on a file. If other files have the same note, adds the file to that note.
fn add_container_note(notes: &mut Vec<FilesNote>, file: Option<String>, new: &torch_import::CheckpointNote) {
    let same = notes.iter_mut().find_map(|known| match known {
        FilesNote::Container { files, note } if note == new => Some(files),
        _ => None,
    });
    match same {
        Some(files) => files.extend(file),
        None => notes.push(FilesNote::Container { files: file.into_iter().collect(), note: new.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use torch_import::CheckpointNote;

    use super::*;

    #[test]
    fn files_with_the_same_note_share_it() {
        let mut notes = Vec::new();
        let pickle = |bytes| CheckpointNote::TrailingAfterPickle { bytes };
        for (file, bytes) in [("a", 1), ("b", 2), ("c", 1)] {
            add_container_note(&mut notes, Some(file.to_owned()), &pickle(bytes));
        }
        let note = |files: &[&str], bytes| FilesNote::Container {
            files: files.iter().map(|&file| file.to_owned()).collect(),
            note: pickle(bytes),
        };
        assert_eq!(notes, [note(&["a", "c"], 1), note(&["b"], 2)]);
    }
}
