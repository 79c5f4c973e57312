//! Open checkpoints and cartons: their tensors, and the maps that Python objects share with them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use torch2carton::crates::byte_source::BufferSource;
use torch2carton::crates::carton_tools;
use torch2carton::crates::checkpoint_files::{self, CheckpointSources};
use torch2carton::crates::pipeline::ShardPolicy;
use torch2carton::crates::torch_import::{CheckpointValue, Container, ItemContent};
use torch2carton::{Carton, Result, Tensors};

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

/// Returns false for a file that does not begin as a zip archive, which needs no closer look.
fn may_be_carton(path: &Path) -> bool {
    if !path.is_file() {
        // Opening a named pipe would wait for a writer.
        return path.is_dir();
    }
    let mut start = [0; 2];
    let read = File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut start));
    read.is_ok() && start == *b"PK"
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

    /// Finds the files of the checkpoint. One shard of several counts as a whole checkpoint.
    pub(crate) fn sources(self) -> Result<CheckpointSources> {
        match self {
            Self::Path(path) => {
                let shards = if path.is_dir() { ShardPolicy::RequireAll } else { ShardPolicy::ThisFileOnly };
                Ok(CheckpointSources::find(&[path], shards)?)
            }
            Self::Bytes(bytes) => {
                Ok(CheckpointSources::source(Arc::new(BufferSource::new("<bytes>", bytes))))
            }
        }
    }
}

/// Opens the files of a checkpoint as containers.
pub(crate) fn open_containers(sources: &CheckpointSources, backend: Backend) -> Result<Vec<Container>> {
    // A trainer's layout opens its own files.
    if backend == Backend::Map || sources.inputs().next().is_none() || sources.trainer_pickle().is_some() {
        return Ok(sources.open()?);
    }
    let open = |path: &PathBuf| {
        let file = UnmappedFile::open(path)
            .map_err(|reason| checkpoint_files::Error::Io { path: path.clone(), reason })?;
        Container::from_source(Arc::new(file)).map_err(|reason| {
            checkpoint_files::Error::Checkpoint { path: path.clone(), reason: Box::new(reason) }.into()
        })
    };
    sources.files.iter().map(open).collect()
}

impl Opened {
    pub(crate) fn open(input: Input, backend: Backend) -> Result<Self> {
        let path = input.path();
        if let Input::Path(path) = &input
            && may_be_carton(path)
            && carton_tools::is_carton(path)
        {
            return Self::open_carton(path, backend);
        }
        let sources = input.sources()?;
        let containers = open_containers(&sources, backend)?;
        let (checkpoint, notes) = sources.read::<checkpoint_files::Error>(&containers, &|_, _| Ok(()))?;
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

    fn open_carton(path: &Path, backend: Backend) -> Result<Self> {
        let carton = Carton::open(path)?;
        Ok(Self {
            path: path.into(),
            maps: Arc::new(Maps::new(backend)),
            tensors: carton.tensors(&())?,
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
