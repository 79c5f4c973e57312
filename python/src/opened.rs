//! Open checkpoints and cartons: their tensors, and the maps that Python objects share with them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use torch2carton::crates::byte_source::{
    self, BufferSource, Listing, LocalStore, Location, OpenedFile, Stat, Store, Upload,
};
use torch2carton::crates::carton_format;
use torch2carton::crates::open::files::{CheckpointSources, ShardPolicy};
use torch2carton::crates::torch_import::{CheckpointValue, Container, ItemContent};
use torch2carton::{Carton, Observer, Result, Source, Tensors};

use crate::maps::{Backend, Maps};
use crate::unmapped_file::UnmappedFile;

/// Prefix of the names of values in the metadata of a safetensors file.
const METADATA: &str = "__metadata__.";

/// An open checkpoint or carton.
pub(crate) struct Opened {
    pub(crate) path: Arc<Path>,
    pub(crate) maps: Arc<Maps>,
    pub(crate) tensors: Tensors,
    pub(crate) containers: Vec<Container>,
    pub(crate) format: &'static str,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) metadata: Vec<(String, String)>,
    pub(crate) notes: Vec<String>,
}

/// Where a checkpoint is read from.
pub(crate) enum Input {
    Path(PathBuf),
    Bytes(Bytes),
}

impl Input {
    /// Returns the path, or a name in its place.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::Path(path) => path.clone(),
            Self::Bytes(_) => PathBuf::from("<bytes>"),
        }
    }

    /// Opens the file, which is looked at more than once. Returns `None` for a folder, and for a file that cannot be opened,
    /// which is reported by what reads it.
    pub(crate) fn open(&self, backend: Backend) -> Option<Arc<dyn Source>> {
        match self {
            Self::Path(path) => file_opener(backend)(path).ok(),
            Self::Bytes(bytes) => Some(Arc::new(BufferSource::new("<bytes>", bytes.clone()))),
        }
    }

    /// Returns true for a carton. `file` is what [`open`](Self::open) returned.
    pub(crate) fn has_carton(&self, file: Option<&Arc<dyn Source>>) -> bool {
        match (self, file) {
            (Self::Path(_), Some(file)) => carton_format::Carton::is_in(&**file),
            (Self::Path(path), None) => carton_format::Carton::is_at(&path.into()),
            (Self::Bytes(_), _) => false,
        }
    }

    /// Finds the files of the checkpoint. One shard of several counts as a whole checkpoint.
    pub(crate) fn sources(
        self,
        file: Option<&Arc<dyn Source>>,
        backend: Backend,
    ) -> Result<CheckpointSources> {
        let path = self.path();
        let (input, shards) = match (self, file) {
            (Self::Bytes(_), Some(file)) => (Location::from(Arc::clone(file)), ShardPolicy::ThisFileOnly),
            (_, file) => {
                let is_folder = file.is_none() && path.is_dir();
                let store = BackendStore {
                    disks: LocalStore::with_open(file_opener(backend)),
                    opened: file.cloned(),
                };
                let shards = if is_folder { ShardPolicy::RequireAll } else { ShardPolicy::ThisFileOnly };
                (Location::new(Arc::new(store), path), shards)
            }
        };
        CheckpointSources::find(&[input], shards)
    }
}

/// The disks of this machine, of which one file is open.
#[derive(Debug)]
struct BackendStore {
    disks: LocalStore,
    opened: Option<Arc<dyn Source>>,
}

#[deny(clippy::missing_trait_methods)]
impl Store for BackendStore {
    fn list(&self, folder: &Path) -> io::Result<Listing> {
        self.disks.list(folder)
    }

    fn stat(&self, path: &Path) -> io::Result<Option<Stat>> {
        self.disks.stat(path)
    }

    fn open(&self, files: &[PathBuf]) -> Result<Vec<Arc<dyn Source>>, byte_source::Error> {
        match (files, &self.opened) {
            ([path], Some(opened)) if opened.path() == path => Ok(vec![Arc::clone(opened)]),
            _ => self.disks.open(files),
        }
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<Box<dyn Upload>> {
        self.disks.create(path, len)
    }

    fn is_local(&self) -> bool {
        true
    }

    fn has_latency(&self) -> bool {
        self.disks.has_latency()
    }

    fn folder_name(&self, folder: &Path) -> String {
        self.disks.folder_name(folder)
    }
}

fn file_opener(backend: Backend) -> fn(&Path) -> OpenedFile {
    match backend {
        Backend::Map => byte_source::map_file_lazily,
        Backend::Read => |path| Ok(Arc::new(UnmappedFile::open(path)?)),
    }
}

impl Opened {
    pub(crate) fn open(input: Input, backend: Backend, observer: &dyn Observer) -> Result<Self> {
        let path = input.path();
        let file = input.open(backend);
        if input.has_carton(file.as_ref()) {
            return Self::open_carton(&path, backend, observer);
        }
        let sources = input.sources(file.as_ref(), backend)?;
        let containers = sources.open_with(Container::from_source_lazily, observer)?;
        drop(file);
        let (checkpoint, notes) = sources.read_with_observer(&containers, &|_, _| Ok(()), observer)?;
        let metadata = checkpoint.items.iter().filter_map(|item| match &item.content {
            ItemContent::Value(CheckpointValue::Text(text)) => {
                Some((item.name.strip_prefix(METADATA)?.to_owned(), text.to_string()))
            }
            _ => None,
        });
        Ok(Self {
            metadata: metadata.collect(),
            tensors: checkpoint.into_tensors(),
            format: containers.first().map_or("", Container::format),
            files: sources.files,
            notes: notes.iter().map(ToString::to_string).collect(),
            maps: Arc::new(Maps::new(backend)),
            containers,
            path: path.into(),
        })
    }

    fn open_carton(path: &Path, backend: Backend, observer: &dyn Observer) -> Result<Self> {
        let carton = Carton::open_with(path, file_opener(backend))?;
        Ok(Self {
            path: path.into(),
            maps: Arc::new(Maps::new(backend)),
            tensors: carton.tensors(observer)?,
            containers: Vec::new(),
            format: "carton",
            files: vec![path.to_owned()],
            metadata: Vec::new(),
            notes: Vec::new(),
        })
    }
}

/// Takes a path, or the bytes of a file.
pub(crate) fn input_of(source: &Bound<'_, PyAny>) -> PyResult<Input> {
    if let Ok(bytes) = source.cast::<PyBytes>() {
        return Ok(Input::Bytes(Bytes::from_owner(PyBackedBytes::from(bytes.clone()))));
    }
    Ok(Input::Path(source.extract()?))
}
