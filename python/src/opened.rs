//! Open checkpoints and cartons: their tensors, and the maps that Python objects share with them.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use torch2carton::crates::byte_source::BufferSource;
use torch2carton::crates::carton_tools;
use torch2carton::crates::checkpoint_files::{self, CheckpointSources};
use torch2carton::crates::pipeline::{InspectOptions, ShardPolicy};
use torch2carton::crates::torch_import::{CheckpointValue, Container, ItemContent};
use torch2carton::{Carton, Error, ReadError, Result, Source, Tensors};

use crate::maps::{Backend, Maps};
use crate::tensor::Tensor;
use crate::{errors, views};

/// Prefix of the names of values in the metadata of a safetensors file.
const METADATA: &str = "__metadata__.";

/// Name, kind, dtype and shape of a compound tensor, and the names of its parts.
type CompoundRow = (String, String, &'static str, Vec<u64>, Vec<String>);

/// A file that is read by pread(2) and never mapped.
#[derive(Debug)]
struct UnmappedFile {
    path: PathBuf,
    file: File,
    len: u64,
    modified: Option<SystemTime>,
}

impl UnmappedFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
        }
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

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), ReadError> {
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

    fn in_memory(&self) -> Option<&[u8]> {
        None
    }

    fn check_unchanged(&self) -> Result<(), ReadError> {
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

/// An open checkpoint or carton.
pub(crate) struct Opened {
    pub(crate) path: Arc<Path>,
    pub(crate) maps: Arc<Maps>,
    pub(crate) tensors: Tensors,
    containers: Vec<Container>,
    format: &'static str,
    files: Vec<PathBuf>,
    metadata: Vec<(String, String)>,
    notes: Vec<String>,
}

/// Returns false for a file that does not begin as a zip archive, which needs no closer look.
fn may_be_carton(path: &Path) -> bool {
    let mut start = [0; 2];
    match File::open(path).and_then(|mut file| io::Read::read_exact(&mut file, &mut start)) {
        Ok(()) => start == *b"PK",
        // A folder, or a file that cannot be read.
        Err(_) => path.is_dir(),
    }
}

/// Where a checkpoint is read from.
pub(crate) enum Input {
    Path(PathBuf),
    Bytes(Vec<u8>),
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
    fn open(input: Input, backend: Backend) -> Result<Self> {
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
            tensors: checkpoint.to_tensors(),
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

/// An open checkpoint or carton, whose tensors are read when they are needed.
#[pyclass(frozen, module = "torch2carton._native")]
pub(crate) struct Checkpoint {
    opened: Arc<Opened>,
}

/// Takes a path, or the bytes of a file.
pub(crate) fn input_of(source: &Bound<'_, PyAny>) -> PyResult<Input> {
    if let Ok(bytes) = source.cast::<pyo3::types::PyBytes>() {
        return Ok(Input::Bytes(bytes.as_bytes().to_vec()));
    }
    Ok(Input::Path(source.extract()?))
}

#[pymethods]
impl Checkpoint {
    #[new]
    fn new(py: Python<'_>, source: &Bound<'_, PyAny>, backend: &str) -> PyResult<Self> {
        let input = input_of(source)?;
        let path = input.path();
        let backend = Backend::from_name(backend).ok_or_else(|| {
            let text = format!("backend `{backend}` is unknown, expected `mmap` or `pread`");
            errors::own(py, torch2carton::ErrorKind::Option, &text)
        })?;
        let opened = py.detach(|| Opened::open(input, backend));
        let opened = opened.map_err(|error: Error| errors::exception(py, &error, Some(&path)))?;
        Ok(Self { opened: Arc::new(opened) })
    }

    /// The format of the files, such as `zip`.
    #[getter]
    fn format(&self) -> &'static str {
        self.opened.format
    }

    /// The paths of the files.
    #[getter]
    fn files(&self) -> Vec<PathBuf> {
        self.opened.files.clone()
    }

    /// The metadata of a safetensors file.
    #[getter]
    fn metadata(&self) -> Vec<(String, String)> {
        self.opened.metadata.clone()
    }

    /// Irregularities, each a sentence for people.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.opened.notes.clone()
    }

    /// Names that the metadata of safetensors files gives to tensors of another name, with that name.
    #[getter]
    fn tied_names(&self) -> Vec<(String, String)> {
        let ties = self.opened.containers.iter().flat_map(Container::tied_names);
        ties.map(|(name, kept)| (name.to_owned(), kept.to_owned())).collect()
    }

    /// The names of the tensors, in the order of the files.
    fn names(&self) -> Vec<&str> {
        self.opened.tensors.names().collect()
    }

    /// The names of the tensors in the order of their bytes in the files.
    fn names_by_offset(&self) -> Vec<&str> {
        let mut tensors: Vec<_> = self.opened.tensors.iter().collect();
        let place = |tensor: &torch2carton::Tensor| {
            tensor.storage().file_offset().map(|start| start.saturating_add(tensor.span().start))
        };
        tensors.sort_by_key(|(_, tensor)| place(tensor));
        tensors.into_iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Compound tensors: name, kind, dtype, shape and the names of the parts.
    fn compounds(&self) -> Vec<CompoundRow> {
        let tensors = &self.opened.tensors;
        let row = |compound: &torch2carton::CompoundTensor| {
            let parts = tensors.parts(compound).iter().map(|(name, _)| name.clone()).collect();
            let kind = crate::tensor::kind_name(&compound.kind);
            (compound.name.clone(), kind, compound.dtype.name(), compound.shape.clone(), parts)
        };
        tensors.compounds().iter().map(row).collect()
    }

    /// The statistics of all tensors as JSON.
    #[pyo3(signature = (*, histograms, progress))]
    fn statistics(
        &self,
        py: Python<'_>,
        histograms: bool,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<String> {
        let set = |options: &mut InspectOptions| {
            options.statistics = true;
            options.histograms = histograms;
        };
        views::inspected(py, self.opened.tensors.clone(), &self.opened.path, set, progress)
    }

    /// The rows of the tree of modules as JSON, those of the `depth` outermost levels.
    fn tree_rows(&self, py: Python<'_>, depth: Option<usize>) -> PyResult<String> {
        let set = |options: &mut InspectOptions| {
            options.tree = true;
            options.depth = depth;
        };
        views::inspected(py, self.opened.tensors.clone(), &self.opened.path, set, None)
    }

    fn __len__(&self) -> usize {
        self.opened.tensors.len()
    }

    fn __contains__(&self, name: &str) -> bool {
        self.opened.tensors.contains(name)
    }

    fn __getitem__(&self, name: &str) -> PyResult<Tensor> {
        let found = self.opened.tensors.position(name);
        let tensor = found.and_then(|position| Tensor::listed(&self.opened, position));
        tensor.ok_or_else(|| PyKeyError::new_err(name.to_owned()))
    }

    /// All tensors with their names, in the order of the files.
    fn items(&self) -> Items {
        Items { opened: Arc::clone(&self.opened), next: AtomicUsize::new(0) }
    }

    /// The bytes of all tensors.
    #[getter]
    fn nbytes(&self) -> u64 {
        let sizes = self.opened.tensors.iter().map(|(_, tensor)| tensor.nbytes());
        sizes.fold(0, u64::saturating_add)
    }
}

/// Iterator over the names and tensors of an open checkpoint.
#[pyclass(frozen, module = "torch2carton._native")]
pub(crate) struct Items {
    opened: Arc<Opened>,
    next: AtomicUsize,
}

#[pymethods]
impl Items {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self) -> Option<(&str, Tensor)> {
        let position = self.next.fetch_add(1, Ordering::Relaxed);
        let (name, _) = self.opened.tensors.get_index(position)?;
        Some((name, Tensor::listed(&self.opened, position)?))
    }
}
