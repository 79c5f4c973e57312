//! Open checkpoints as Python objects, and the iterator over their tensors.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use torch2carton::Error;
use torch2carton::crates::inspect::InspectOptions;
use torch2carton::crates::torch_import::Container;

use crate::maps::Backend;
use crate::opened::{Opened, input_of};
use crate::tensor::Tensor;
use crate::{errors, views, work};

/// Name, kind, dtype and shape of a compound tensor, and the names of its parts.
type CompoundRow = (String, String, &'static str, Vec<u64>, Vec<String>);

/// An open checkpoint or carton, whose tensors are read when they are needed.
#[pyclass(frozen, module = "torch2carton._native")]
pub(crate) struct Checkpoint {
    opened: Arc<Opened>,
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
        let opened = work::run_short(py, |observer| Opened::open(input, backend, observer))?;
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

    fn __getitem__(&self, name: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        // A key of another type is a key that is not there, as in a dict.
        let text = name.cast::<PyString>().ok();
        let text = text.map(PyStringMethods::to_cow).transpose()?;
        let found = text.and_then(|text| self.opened.tensors.position(&text));
        let tensor = found.and_then(|position| Tensor::listed(&self.opened, position));
        tensor.ok_or_else(|| PyKeyError::new_err((name.clone().unbind(),)))
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
