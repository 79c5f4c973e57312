//! Open checkpoints and cartons: their tensors, and the maps that Python objects share with them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use torch2carton::crates::byte_source::{self, BufferSource, OpenedFile};
use torch2carton::crates::carton_tools;
use torch2carton::crates::checkpoint_files::{self, CheckpointSources, ToContainer};
use torch2carton::crates::pipeline::ShardPolicy;
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
    pub(crate) fn is_carton(&self, file: Option<&Arc<dyn Source>>) -> bool {
        match (self, file) {
            (Self::Path(_), Some(file)) => carton_tools::is_carton_file(&**file),
            (Self::Path(path), None) => carton_tools::is_carton(path),
            (Self::Bytes(_), _) => false,
        }
    }

    /// Finds the files of the checkpoint. One shard of several counts as a whole checkpoint.
    pub(crate) fn sources(self, file: Option<&Arc<dyn Source>>) -> Result<CheckpointSources> {
        match (self, file) {
            (Self::Bytes(_), Some(file)) => Ok(CheckpointSources::source(Arc::clone(file))),
            (input, file) => {
                let path = input.path();
                if file.is_some() {
                    return Ok(CheckpointSources::find_of_file(&path, ShardPolicy::ThisFileOnly, file)?);
                }
                let shards = if path.is_dir() { ShardPolicy::RequireAll } else { ShardPolicy::ThisFileOnly };
                Ok(CheckpointSources::find(&[path], shards)?)
            }
        }
    }
}

fn file_opener(backend: Backend) -> fn(&Path) -> OpenedFile {
    match backend {
        Backend::Map => byte_source::map_file_lazily,
        Backend::Read => |path| Ok(Arc::new(UnmappedFile::open(path)?)),
    }
}

/// Opens the files of a checkpoint as containers with `to_container`. `opened` is the one that is already open.
pub(crate) fn open_containers(
    sources: &CheckpointSources,
    opened: Option<&Arc<dyn Source>>,
    backend: Backend,
    to_container: ToContainer,
    observer: &dyn Observer,
) -> Result<Vec<Container>> {
    let open = |path: &Path| {
        let opened = opened.filter(|file| file.path() == path).cloned();
        opened.map_or_else(|| file_opener(backend)(path), Ok)
    };
    Ok(sources.open_with(&open, to_container, observer)?)
}

impl Opened {
    pub(crate) fn open(input: Input, backend: Backend, observer: &dyn Observer) -> Result<Self> {
        let path = input.path();
        let file = input.open(backend);
        if input.is_carton(file.as_ref()) {
            return Self::open_carton(&path, backend, observer);
        }
        let sources = input.sources(file.as_ref())?;
        let open = Container::from_source_lazily;
        let containers = open_containers(&sources, file.as_ref(), backend, open, observer)?;
        drop(file);
        let (checkpoint, notes) =
            sources.read_with_observer::<checkpoint_files::Error>(&containers, &|_, _| Ok(()), observer)?;
        let metadata = checkpoint.items.iter().filter_map(|item| match &item.content {
            ItemContent::Value(CheckpointValue::Text(text)) => {
                Some((item.name.strip_prefix(METADATA)?.to_owned(), text.to_string()))
            }
            _ => None,
        });
        Ok(Self {
            metadata: metadata.collect(),
            tensors: checkpoint.into_tensors(),
            format: containers.first().map_or("", |container| container.format().name()),
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
