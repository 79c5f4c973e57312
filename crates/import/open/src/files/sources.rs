//! The files of one checkpoint: opens them and reads the checkpoint.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::trainers::{TrainerArchive, TrainerLayout};
use byte_source::{Location, Observer, Source, SourceReader, Store};
use torch_import::{Checkpoint, CheckpointNote, Container, ModelSizes, Shard, WeightMapIndex};

use crate::files::companions::{Companion, companions};
use crate::files::document_cache::DocumentCache;
use crate::files::folder_names::folder_above;
use crate::files::numbering::shard_number;
use crate::files::rank_part::rank_part;
use crate::files::{FilesNote, Problem, Result, ShardNumber};
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
    /// Store that has the files.
    store: Arc<dyn Store>,
    /// The input, if it is a folder.
    pub(crate) folder: Option<Location>,
    /// File in whose folder the documents and companions of the model are.
    documents_next_to: Location,
    /// Companions that are not on this machine, copied into a temporary folder when they are asked for.
    copied: OnceLock<(Scratch, Vec<Companion>)>,
    /// Archive that has the files of the checkpoint, if `path` is one.
    archive: Option<TrainerArchive>,
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
    /// The checkpoint is a zip archive that was unpacked.
    Unpacked,
    /// Each rank of a training wrote parts of tensors.
    Trainer(&'static dyn TrainerLayout),
}

/// Function that reads a source as a container, such as [`Container::from_source_with_observer`].
pub type ToContainer = fn(Arc<dyn Source>, &dyn Observer) -> torch_import::Result<Container>;

impl CheckpointSources {
    /// Treats a file as a checkpoint, whatever its name is.
    pub fn file(file: &Location) -> Self {
        Self::new(vec![file.path().to_owned()], file, SourcesKind::Single)
    }

    /// Treats a file or a folder as one checkpoint, such as a carton, whose documents are in the folder of another file.
    pub fn with_documents_next_to(input: &Location, documents: &Location) -> Self {
        let folder = input.is_folder().then(|| input.clone());
        let next_to = documents.clone();
        Self {
            folder,
            documents: DocumentCache::next_to(documents),
            documents_next_to: next_to,
            ..Self::file(input)
        }
    }

    /// Returns true if an index lists a tensor whose name ends like this.
    pub(crate) fn index_lists_end(&self, end: &str) -> bool {
        matches!(&self.kind, SourcesKind::Indexed { index, .. } if index.lists_end(end))
    }

    /// Creates the sources of `files`, which are in the store of `whole`, the checkpoint as a single file.
    pub(crate) fn new(files: Vec<PathBuf>, whole: &Location, kind: SourcesKind) -> Self {
        Self {
            files,
            path: whole.path().to_owned(),
            notes: Vec::new(),
            documents: DocumentCache::next_to(whole),
            kind,
            store: Arc::clone(whole.store()),
            folder: None,
            documents_next_to: whole.clone(),
            copied: OnceLock::new(),
            archive: None,
        }
    }

    /// Finds the checkpoint in an archive.
    pub(crate) fn archive(file: &Location) -> Result<Self> {
        let path = file.path();
        let archive = file.open().and_then(TrainerArchive::from_source);
        let archive = archive.map_err(|error| error.in_folder(path))?;
        let kind = archive.layout.map_or(SourcesKind::Single, SourcesKind::Trainer);
        Ok(Self { archive: Some(archive), ..Self::new(vec![path.to_owned()], file, kind) })
    }

    /// Creates the sources of a trainer's checkpoint in `folder`.
    pub(crate) fn trainer(
        files: Vec<PathBuf>,
        folder: &Location,
        layout: &'static dyn TrainerLayout,
    ) -> Self {
        let documents_next_to = trainer_documents(folder).join(TRAINER_FILE);
        let documents = DocumentCache::next_to(&documents_next_to);
        let kind = SourcesKind::Trainer(layout);
        Self { documents, documents_next_to, ..Self::new(files, &folder.join(TRAINER_FILE), kind) }
    }

    /// Returns the input if it is a folder.
    pub fn folder(&self) -> Option<&Location> {
        self.folder.as_ref()
    }

    /// Returns the location of the checkpoint as a single file, which need not exist.
    pub fn location(&self) -> Location {
        Location::new(Arc::clone(&self.store), &self.path)
    }

    /// Returns the locations of the files, and of the index if there is one.
    pub fn locations(&self) -> impl Iterator<Item = Location> {
        let index = match &self.kind {
            SourcesKind::Indexed { path, .. } => Some(path),
            _ => None,
        };
        self.files.iter().chain(index).map(|path| Location::new(Arc::clone(&self.store), path))
    }

    /// Returns the paths of this machine from which the checkpoint is read: its files, and the index if there is one.
    pub fn inputs(&self) -> impl Iterator<Item = &Path> {
        let index = match &self.kind {
            SourcesKind::Indexed { path, .. } => Some(path),
            _ => None,
        };
        self.files.iter().chain(index).map(PathBuf::as_path).filter(|_| self.store.is_local())
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
    /// Those of [`open`](Self::open), and [`Cancelled`](byte_source::Cancelled).
    pub fn open_with_observer(&self, observer: &dyn Observer) -> Result<Vec<Container>> {
        self.open_with(Container::from_source_with_observer, observer)
    }

    /// Opens all files, and makes a container of each plain file or shard with `to_container`.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and of the function.
    pub fn open_with(&self, to_container: ToContainer, observer: &dyn Observer) -> Result<Vec<Container>> {
        self.reject_duplicate_files()?;
        if let Some(archive) = &self.archive {
            return archive.containers().map_err(|error| error.in_folder(&self.path));
        }
        let open = |(source, path): (Arc<dyn Source>, &PathBuf)| match self.kind {
            SourcesKind::Trainer(layout) => layout.open(source).map_err(|error| error.in_folder(self.root())),
            _ => to_container(source, observer).map_err(|error| error.in_file(path)),
        };
        let sources = self.store.open(&self.files)?;
        if matches!(self.kind, SourcesKind::Unpacked) {
            let name = |path: &PathBuf| {
                let below = path.strip_prefix(self.root()).unwrap_or(path);
                below.to_string_lossy().replace('\\', "/")
            };
            let files = self.files.iter().map(name).zip(sources).collect();
            let container = Container::from_unpacked(self.root(), files);
            return Ok(vec![container.map_err(|error| error.in_file(self.root()))?]);
        }
        sources.into_iter().zip(&self.files).map(open).collect()
    }

    /// Returns the documents and tokenizers next to the files, with notes on those that are left out. Those that are not on this
    /// machine are copied into a temporary folder: an output reads them when it is written.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn companions(&self) -> Result<(Vec<Companion>, Vec<FilesNote>)> {
        if self.documents_next_to.is_local() {
            return companions(&self.documents_next_to);
        }
        if let Some((_, copied)) = self.copied.get() {
            return Ok((copied.clone(), Vec::new()));
        }
        let (companions, notes) = companions(&self.documents_next_to)?;
        let copied = copy_to_local(&*self.store, companions)?;
        Ok((self.copied.get_or_init(|| copied).1.clone(), notes))
    }

    /// Returns the locations of the documents and tokenizers next to the files, in their store.
    ///
    /// # Errors
    /// When the folder cannot be listed.
    pub fn companion_locations(&self) -> Result<Vec<Location>> {
        let (companions, _) = companions(&self.documents_next_to)?;
        Ok(companions.into_iter().map(|(_, path)| self.documents_next_to.at(path)).collect())
    }

    /// Returns the location of a document next to the files, which need not exist.
    pub fn document(&self, name: &str) -> Location {
        self.documents_next_to.at(self.documents_next_to.path().with_file_name(name))
    }

    /// Rejects a set in which two paths lead to one file: its tensors would be merged with themselves.
    fn reject_duplicate_files(&self) -> Result<()> {
        if self.files.len() < 2 || !self.store.is_local() {
            // Resolving a path takes a system call for each of its folders.
            return Ok(());
        }
        let mut known = HashMap::with_capacity(self.files.len());
        for path in &self.files {
            // A file that cannot be resolved is reported when it is opened.
            let Ok(file) = path.canonicalize() else { continue };
            if let Some(first) = known.insert(file, path) {
                return Err(Problem::SameFileTwice { first: first.clone(), second: path.clone() }.into());
            }
        }
        Ok(())
    }

    /// Reads the opened files as one checkpoint, and returns it with all notes. `judge` receives each file's checkpoint
    /// before it is merged with the others, and can reject it.
    ///
    /// # Errors
    /// When a file is damaged, `judge` rejects it, or the files do not fit together.
    pub fn read(
        &self,
        containers: &[Container],
        judge: &dyn Fn(&Path, &Checkpoint) -> Result<()>,
    ) -> Result<(Checkpoint, Vec<FilesNote>)> {
        self.read_with_observer(containers, judge, &())
    }

    /// Reads the opened files like [`read`](Self::read), with an observer that can stop the reading and the comparison of shards.
    ///
    /// # Errors
    /// Those of [`read`](Self::read), and [`Cancelled`](byte_source::Cancelled).
    pub fn read_with_observer(
        &self,
        containers: &[Container],
        judge: &dyn Fn(&Path, &Checkpoint) -> Result<()>,
        observer: &dyn Observer,
    ) -> Result<(Checkpoint, Vec<FilesNote>)> {
        let (mut checkpoint, notes) = self.read_readable(containers, judge, observer)?;
        checkpoint.refuse_unreadable().map_err(|error| error.in_file(self.root()))?;
        Ok((checkpoint, notes))
    }

    /// Reads the opened files like [`read_with_observer`](Self::read_with_observer), and lists the tensors that cannot be read, with
    /// a note on each, so that the caller can leave them out.
    pub(crate) fn read_readable(
        &self,
        containers: &[Container],
        judge: &dyn Fn(&Path, &Checkpoint) -> Result<()>,
        observer: &dyn Observer,
    ) -> Result<(Checkpoint, Vec<FilesNote>)> {
        let several = containers.len() > 1;
        let mut notes = self.notes.clone();
        if let SourcesKind::Trainer(layout) = self.kind {
            let joined = layout.join(containers, observer);
            let joined = joined.map_err(|error| error.in_folder(self.root()))?;
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
            let mut checkpoint =
                Checkpoint::read_readable(container, observer).map_err(|error| error.in_file(path))?;
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
            SourcesKind::Single | SourcesKind::Numbered | SourcesKind::Unpacked | SourcesKind::Trainer(_) => {
                torch_import::merge_whole_tensors(shards, None)
            }
            SourcesKind::Indexed { index, .. } => torch_import::merge_whole_tensors(shards, Some(index)),
            SourcesKind::ModelParallel => {
                let sizes = match self.documents.params()? {
                    Some(text) => ModelSizes::from_json(text)
                        .map_err(|error| error.in_file(parent_folder(&self.path)))?,
                    None => ModelSizes::default(),
                };
                torch_import::merge_model_parallel(shards, &sizes, observer)
            }
        };
        let merged = merged.map_err(|error| error.in_file(parent_folder(&self.path)))?;
        merged.notes.iter().for_each(|note| add_container_note(&mut notes, None, note));
        for (_, reason) in &merged.checkpoint.unreadable {
            let note = CheckpointNote::Format { text: reason.to_string() };
            add_container_note(&mut notes, None, &note);
        }
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

    /// Returns the shard that the name of the single file stands for; `None` for a checkpoint of its own.
    pub fn shard_number(&self) -> Option<ShardNumber> {
        if self.is_single() { shard_number(&self.location()) } else { None }
    }

    /// Returns the files with names of checkpoints, in the input folder, that are neither read nor another part or form of what is
    /// read.
    pub fn separate_files(&self) -> Vec<Location> {
        let Some(folder) = &self.folder else { return Vec::new() };
        let unused = self.notes.iter().filter_map(|note| match note {
            FilesNote::CheckpointFilesUnused { files } => Some(files),
            _ => None,
        });
        let files = unused.flatten().map(|name| folder.join(name));
        let is_of_trainer = |file: &Location| {
            let name = file_name(file.path());
            self.is_of_trainer() && (rank_part(file).is_some() || TRAINER_FILES.contains(&name.as_str()))
        };
        files.filter(|file| !is_of_trainer(file)).collect()
    }

    /// Returns true if the checkpoint is a step of a training in a folder below the input.
    pub fn is_step_below(&self) -> bool {
        self.is_of_trainer()
            && self.folder.as_ref().is_some_and(|folder| self.path.parent() != Some(folder.path()))
    }

    /// Returns true if nothing but the lack of others says that the single file is the checkpoint of its folder.
    ///
    /// # Errors
    /// When a document next to it cannot be read.
    pub fn is_alone_by_chance(&self) -> Result<bool> {
        let documents = &self.documents;
        let has_document = documents.config()?.or(documents.params()?).or(documents.adapter()?).is_some();
        Ok(self.is_single() && self.folder.is_some() && !has_document)
    }

    /// Returns true if the checkpoint is a single file.
    pub fn is_single(&self) -> bool {
        matches!(self.kind, SourcesKind::Single)
    }
}

/// Copies files into a temporary folder, below their names.
pub(crate) fn copy_to_local(store: &dyn Store, files: Vec<Companion>) -> Result<(Scratch, Vec<Companion>)> {
    let (names, paths): (Vec<String>, Vec<PathBuf>) = files.into_iter().unzip();
    let sources = store.open(&paths)?;
    // Unlike other temporary folders, it does not outlive a signal.
    let local = Scratch::create(&std::env::temp_dir())?;
    let mut copied = Vec::with_capacity(names.len());
    for (name, source) in names.into_iter().zip(sources) {
        let path = local.path().join(&name);
        output::check_system_name(&path)?;
        std::fs::create_dir_all(parent_folder(&path))?;
        let mut file = File::create(&path).map_err(|error| byte_source::Error::from(error).in_file(&path))?;
        let mut reader = SourceReader::new(&*source, 0..source.len());
        std::io::copy(&mut reader, &mut file)?;
        copied.push((name, path));
    }
    Ok((local, copied))
}

/// Name of the file that a trainer's folder stands for, which need not exist.
const TRAINER_FILE: &str = "checkpoint.pt";
/// Names of files without weights that trainers write next to those of the ranks: Megatron-LM and Lightning.
const TRAINER_FILES: &[&str] = &["common.pt", "meta.pt"];

/// Returns the folder with the documents of a model that was trained: the one of the checkpoint, `huggingface` in it, or its
/// parent.
fn trainer_documents(folder: &Location) -> Location {
    let candidates = [folder.clone(), folder.join("huggingface"), folder.at(folder_above(folder.path()))];
    let has_documents =
        |folder: &Location| ["config.json", "params.json"].iter().any(|name| folder.join(name).is_file());
    candidates.into_iter().find(has_documents).unwrap_or_else(|| folder.clone())
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
