//! Builds Python objects from the objects of a pickle. Nothing is looked up or called, except the functions in a table that
//! the caller gives.
//!
//! Objects are made in the order of the pickle, so the arguments of a call exist before it. Containers are made empty and
//! filled at the end, or before a call that takes them.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{
    PyByteArray, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple,
};
use torch2carton::crates::pickle_vm::{Heap, Object, ObjectId};
use torch2carton::crates::torch_import::{self, CheckpointNote, Container, PersistentObject, PickledObjects};
use torch2carton::{ErrorKind, Source};

use crate::maps::{Backend, Maps};
use crate::opened::{Input, input_of};
use crate::storage::Storage;
use crate::{errors, work};

/// Number of objects between two looks at signals.
const OBJECTS_PER_CHECK: usize = 1 << 14;

/// The pickle of an open file.
#[pyclass(frozen, module = "torch2carton._native")]
pub(crate) struct Objects {
    path: PathBuf,
    container: Container,
    maps: Arc<Maps>,
}

#[pymethods]
impl Objects {
    #[new]
    fn new(py: Python<'_>, source: &Bound<'_, PyAny>, backend: &str) -> PyResult<Self> {
        let backend = Backend::from_name(backend).unwrap_or(Backend::Map);
        let input = input_of(source)?;
        let file = py.detach(|| input.open(backend));
        Self::read(py, input, file, backend)
    }

    /// Opens a file that may be a carton; None if it is one.
    #[staticmethod]
    fn unless_carton(py: Python<'_>, source: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let input = input_of(source)?;
        let (file, has_carton) = py.detach(|| {
            let file = input.open(Backend::Map);
            let has_carton = input.has_carton(file.as_ref());
            (file, has_carton)
        });
        if has_carton { Ok(None) } else { Self::read(py, input, file, Backend::Map).map(Some) }
    }

    /// The format of the file, such as `zip`.
    #[getter]
    fn format(&self) -> &'static str {
        self.container.format()
    }

    /// The bytes after the last storage of a file in the format before PyTorch 1.6, in which another object may follow.
    #[getter]
    fn trailing_bytes(&self) -> u64 {
        let trailing = self.container.notes().iter().find_map(|note| match note {
            CheckpointNote::TrailingAfterStorages { bytes } => Some(*bytes),
            _ => None,
        });
        trailing.unwrap_or(0)
    }

    /// Builds the root object with the functions of `hooks`, a `torch2carton._objects.Hooks`.
    fn build<'py>(&self, py: Python<'py>, hooks: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let container = &self.container;
        let read = work::run_short(py, |observer| PickledObjects::read_with_observer(container, observer))?;
        let objects = read.map_err(|error| self.exception(py, error))?;
        let Some(objects) = objects else {
            let text = format!("{} has no pickle, but a header", self.path.display());
            return Err(errors::own(py, ErrorKind::Input, &text));
        };
        let built = Builder::new(py, self, &objects, hooks)?.build();
        // The objects may be millions.
        py.detach(|| drop(objects));
        built
    }
}

impl Objects {
    fn read(py: Python<'_>, input: Input, file: Option<Arc<dyn Source>>, backend: Backend) -> PyResult<Self> {
        let path = input.path();
        let opened = work::run_short(py, |observer| {
            let sources = input.sources(file.as_ref(), backend)?;
            sources.open_with(Container::from_source_with_observer, observer)
        })?;
        let containers = opened.map_err(|error| errors::exception(py, &error, Some(&path)))?;
        let [container] = containers.as_slice() else {
            let text = format!("{}: {} files are not one object", path.display(), containers.len());
            return Err(errors::own(py, ErrorKind::Input, &text));
        };
        Ok(Self { path, container: container.clone(), maps: Arc::new(Maps::new(backend)) })
    }

    fn exception(&self, py: Python<'_>, error: torch_import::Error) -> PyErr {
        errors::exception(py, &error.in_file(&self.path), Some(&self.path))
    }
}

/// What the table of functions says about a callable.
enum Call<'py> {
    /// Function to call, and whether it only keeps references to its arguments.
    Function(Bound<'py, PyAny>, bool),
    /// No function: the call is recorded.
    Recorded,
}

struct Builder<'b, 'py> {
    py: Python<'py>,
    file: &'b Objects,
    objects: &'b PickledObjects,
    heap: &'b Heap<'b>,
    hooks: &'b Bound<'py, PyAny>,
    calls: Bound<'py, PyDict>,
    /// The Python objects made so far, by the ids of the objects.
    made: Vec<Option<Bound<'py, PyAny>>>,
    is_reachable: Vec<bool>,
    /// True for objects that are filled, together with all objects in them.
    is_filled: Vec<bool>,
    /// The entries of the table for the globals seen so far.
    known_calls: Vec<(ObjectId, Call<'py>)>,
    int_from_bytes: Bound<'py, PyAny>,
}

impl<'b, 'py> Builder<'b, 'py> {
    fn new(
        py: Python<'py>,
        file: &'b Objects,
        objects: &'b PickledObjects,
        hooks: &'b Bound<'py, PyAny>,
    ) -> PyResult<Self> {
        let heap = objects.heap();
        Ok(Self {
            py,
            file,
            objects,
            heap,
            hooks,
            calls: hooks.getattr("calls")?.cast_into::<PyDict>()?,
            made: vec![None; heap.len()],
            is_reachable: vec![false; heap.len()],
            is_filled: vec![false; heap.len()],
            known_calls: Vec::new(),
            int_from_bytes: py.get_type::<PyInt>().getattr("from_bytes")?,
        })
    }

    fn build(mut self) -> PyResult<Bound<'py, PyAny>> {
        let root = self.objects.root();
        self.mark(root)?;
        for (number, id) in self.heap.ids().enumerate() {
            if number.is_multiple_of(OBJECTS_PER_CHECK) {
                self.py.check_signals()?;
            }
            if self.is_reachable.get(id.index()) == Some(&true) {
                let object = self.make(id)?;
                if let Some(slot) = self.made.get_mut(id.index()) {
                    *slot = Some(object);
                }
            }
        }
        let mut changed = Vec::new();
        for (number, id) in self.heap.ids().enumerate() {
            if number.is_multiple_of(OBJECTS_PER_CHECK) {
                self.py.check_signals()?;
            }
            if self.is_reachable.get(id.index()) == Some(&true)
                && self.is_filled.get(id.index()) == Some(&false)
            {
                self.fill(id, &mut changed)?;
            }
        }
        self.apply_all_changes(changed)?;
        self.get(root)
    }

    /// Marks the objects that the root needs.
    fn mark(&mut self, root: ObjectId) -> PyResult<()> {
        let mut open = vec![root];
        while let Some(id) = open.pop() {
            match self.is_reachable.get_mut(id.index()) {
                Some(is_reachable) if !*is_reachable => *is_reachable = true,
                _ => continue,
            }
            if matches!(self.heap.get(id), Object::Persistent(_)) {
                if let PersistentObject::Class(class) = self.persistent(id)? {
                    open.push(class);
                }
                continue;
            }
            self.push_parts(id, &mut open);
            if let Some(instance) = self.heap.instance(id) {
                open.push(instance.callable);
            }
        }
        Ok(())
    }

    /// Adds the objects in an object: its items, its entries, the arguments of its call, and what the pickle added later.
    fn push_parts(&self, id: ObjectId, open: &mut Vec<ObjectId>) {
        let heap = self.heap;
        open.extend(heap.items(id).unwrap_or_default());
        open.extend(heap.entries(id).unwrap_or_default().iter().flat_map(|(key, value)| [*key, *value]));
        if let Some(instance) = heap.instance(id) {
            open.push(instance.args);
            open.extend(instance.kwargs());
        }
        if let Some(recorded) = heap.recorded_changes(id) {
            open.extend(recorded.items().iter().flat_map(|(key, value)| [*key, *value]));
            open.extend(recorded.appends());
            open.extend(recorded.state());
        }
    }

    /// Returns the Python object of an object that was made.
    fn get(&self, id: ObjectId) -> PyResult<Bound<'py, PyAny>> {
        let made = self.made.get(id.index()).cloned().flatten();
        made.ok_or_else(|| {
            let offset = self.heap.offset(id);
            PyRuntimeError::new_err(format!("the object at offset 0x{offset:x} is used before it is made"))
        })
    }

    fn get_all(&self, ids: &[ObjectId]) -> PyResult<Vec<Bound<'py, PyAny>>> {
        ids.iter().map(|id| self.get(*id)).collect()
    }

    fn pairs(&self, pairs: &[(ObjectId, ObjectId)]) -> PyResult<Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        pairs.iter().map(|(key, value)| Ok((self.get(*key)?, self.get(*value)?))).collect()
    }

    /// Makes an object, a container without its contents.
    fn make(&mut self, id: ObjectId) -> PyResult<Bound<'py, PyAny>> {
        let (py, heap) = (self.py, self.heap);
        Ok(match heap.get(id) {
            Object::None => py.None().into_bound(py),
            Object::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
            Object::Int(value) => value.into_pyobject(py)?.into_any(),
            Object::Long(value) => {
                let signed = PyDict::new(py);
                signed.set_item("signed", true)?;
                self.int_from_bytes.call((PyBytes::new(py, value.bytes()), "little"), Some(&signed))?
            }
            Object::Float(value) => PyFloat::new(py, *value).into_any(),
            Object::Text(text) => match text.as_str() {
                Some(text) => PyString::new(py, text).into_any(),
                None => PyBytes::new(py, text.bytes()).call_method1("decode", ("utf-8", "surrogatepass"))?,
            },
            Object::String(bytes) => self.hooks.call_method1("string", (PyBytes::new(py, bytes),))?,
            Object::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
            Object::ByteArray(bytes) => PyByteArray::new(py, bytes).into_any(),
            Object::Tuple(_) => {
                PyTuple::new(py, self.get_all(heap.items(id).unwrap_or_default())?)?.into_any()
            }
            Object::FrozenSet(_) => {
                let items = heap.items(id).unwrap_or_default();
                self.fill_before(id, items)?;
                PyFrozenSet::new(py, self.get_all(items)?)?.into_any()
            }
            Object::List(_) => PyList::empty(py).into_any(),
            Object::Dict(_) => PyDict::new(py).into_any(),
            Object::Set(_) => PySet::empty(py)?.into_any(),
            Object::Global(_) => {
                let (module, name) = heap.global(id).unwrap_or_default();
                self.hooks.call_method1("find", (module, name))?
            }
            Object::Instance(_) => self.call(id)?,
            Object::Persistent(_) => self.make_persistent(id)?,
            Object::Extension(code) => self.hooks.call_method1("extension", (*code,))?,
            Object::Buffer { index, .. } => self.hooks.call_method1("out_of_band", (*index,))?,
            other => {
                let text = format!("a {} cannot become a Python object", other.type_name());
                return Err(errors::own(py, ErrorKind::Unsupported, &text));
            }
        })
    }

    fn persistent(&self, id: ObjectId) -> PyResult<PersistentObject> {
        self.objects.persistent(id).map_err(|error| self.file.exception(self.py, error))
    }

    fn make_persistent(&self, id: ObjectId) -> PyResult<Bound<'py, PyAny>> {
        let native = |storage| Storage::new(&self.file.maps, &self.file.path, storage);
        match self.persistent(id)? {
            PersistentObject::Class(class) => self.get(class),
            PersistentObject::Storage(found) => {
                let dtype = found.dtype.map(torch2carton::Dtype::name);
                let view = found.view.map(|(key, range)| (key, range.start, range.end));
                let arguments = (native(found.storage), dtype, found.key, found.location, view);
                self.hooks.call_method1("storage", arguments)
            }
            PersistentObject::Tensor { tensor, key, storage_key } => {
                let dims = (tensor.shape().to_vec(), tensor.stride().to_vec(), tensor.storage_offset());
                let arguments =
                    (native(tensor.storage().clone()), tensor.dtype().name(), (key, storage_key), dims);
                self.hooks.call_method1("tensor", arguments)
            }
            _ => Err(errors::own(self.py, ErrorKind::Unsupported, "an unknown kind of persistent object")),
        }
    }

    /// Makes the result of a recorded call: calls the function of the table, or records the call.
    fn call(&mut self, id: ObjectId) -> PyResult<Bound<'py, PyAny>> {
        let heap = self.heap;
        let Some(instance) = heap.instance(id) else { return self.get(id) };
        let place = self.known_call(instance.callable)?;
        let Some((_, Call::Function(function, keeps))) = self.known_calls.get(place) else {
            return self.record(id);
        };
        let (function, keeps) = (function.clone(), *keeps);
        let args = self.get(instance.args)?;
        let Ok(args) = args.cast_into::<PyTuple>() else { return self.record(id) };
        if !keeps {
            let mut parts = vec![instance.args];
            parts.extend(instance.kwargs());
            self.fill_before(id, &parts)?;
        }
        let kwargs = match instance.kwargs() {
            Some(kwargs) => self.get(kwargs)?.cast_into::<PyDict>().ok(),
            None => None,
        };
        function.call(args, kwargs.as_ref()).map_err(|error| self.call_error(id, error))
    }

    /// Records a call as an inert object.
    fn record(&self, id: ObjectId) -> PyResult<Bound<'py, PyAny>> {
        let Some(instance) = self.heap.instance(id) else { return self.get(id) };
        let kwargs = instance.kwargs().map(|kwargs| self.get(kwargs)).transpose()?;
        let arguments = (
            self.get(instance.callable)?,
            self.get(instance.args)?,
            kwargs,
            instance.construction.to_string(),
        );
        self.hooks.call_method1("record", arguments)
    }

    /// Adds the place of the call to an error of a function of the table.
    fn call_error(&self, id: ObjectId, error: PyErr) -> PyErr {
        if !error.is_instance_of::<pyo3::exceptions::PyException>(self.py) {
            return error;
        }
        let names = self.heap.instance(id).and_then(|instance| self.heap.global(instance.callable));
        let (module, name) = names.unwrap_or_default();
        let path = self.file.path.display().to_string();
        let raised = self
            .hooks
            .call_method1("failed", (module, name, path, self.heap.offset(id), error.value(self.py)));
        raised.map_or_else(|error| error, PyErr::from_value)
    }

    /// Returns the place in `known_calls` of what the table says about a callable.
    fn known_call(&mut self, callable: ObjectId) -> PyResult<usize> {
        if let Some(place) = self.known_calls.iter().rposition(|(known, _)| *known == callable) {
            return Ok(place);
        }
        let found = match self.heap.global(callable) {
            Some(names) => self.calls.get_item(names)?,
            None => None,
        };
        let call = match found {
            Some(entry) => {
                let (function, keeps) = entry.extract::<(Bound<'py, PyAny>, bool)>()?;
                Call::Function(function, keeps)
            }
            None => match self.heap.global(callable) {
                // A class that the program has imported and that is plain data, such as a namedtuple.
                Some((module, name)) => {
                    let found = self.hooks.call_method1("imported", (module, name))?;
                    if found.is_none() { Call::Recorded } else { Call::Function(found, true) }
                }
                None => Call::Recorded,
            },
        };
        self.known_calls.push((callable, call));
        Ok(self.known_calls.len().saturating_sub(1))
    }

    /// Fills the containers among `parts`, and in them, before the call `id` that takes them.
    ///
    /// # Errors
    /// When one of them changes after the call: its state at the time of the call is not known.
    fn fill_before(&mut self, id: ObjectId, parts: &[ObjectId]) -> PyResult<()> {
        let offset = self.heap.offset(id);
        let (mut open, mut changed) = (parts.to_vec(), Vec::new());
        while let Some(part) = open.pop() {
            if self.is_filled.get(part.index()) != Some(&false) {
                continue;
            }
            if self.heap.changed_after(part, offset) {
                let text = format!(
                    "{}: the call at offset 0x{offset:x} takes an object (from offset 0x{:x}) that changes afterwards",
                    self.file.path.display(),
                    self.heap.offset(part),
                );
                return Err(errors::own(self.py, ErrorKind::Unsupported, &text));
            }
            self.fill(part, &mut changed)?;
            if !matches!(self.heap.get(part), Object::Persistent(_)) {
                self.push_parts(part, &mut open);
            }
        }
        self.apply_all_changes(changed)
    }

    /// Adds the contents of a container. An object that the pickle changed is added to `changed`.
    fn fill(&mut self, id: ObjectId, changed: &mut Vec<ObjectId>) -> PyResult<()> {
        let heap = self.heap;
        if let Some(is_filled) = self.is_filled.get_mut(id.index()) {
            *is_filled = true;
        }
        match heap.get(id) {
            Object::List(_) => {
                let list = self.get(id)?.cast_into::<PyList>()?;
                heap.items(id).unwrap_or_default().iter().try_for_each(|item| list.append(self.get(*item)?))
            }
            Object::Set(_) => {
                let set = self.get(id)?.cast_into::<PySet>()?;
                heap.items(id).unwrap_or_default().iter().try_for_each(|item| set.add(self.get(*item)?))
            }
            Object::Dict(_) => {
                let dict = self.get(id)?.cast_into::<PyDict>()?;
                let mut entries = heap.entries(id).unwrap_or_default().iter();
                entries.try_for_each(|(key, value)| dict.set_item(self.get(*key)?, self.get(*value)?))
            }
            _ => {
                if self.heap.recorded_changes(id).is_some() {
                    changed.push(id);
                }
                Ok(())
            }
        }
    }

    /// Applies the changes of several objects, in the order of the pickle: the state of an object may hold other ones.
    fn apply_all_changes(&self, mut changed: Vec<ObjectId>) -> PyResult<()> {
        changed.sort_by_key(|id| self.heap.last_change(*id));
        changed.into_iter().try_for_each(|id| self.apply_changes(id))
    }

    /// Applies SETITEMS, APPENDS and BUILD to the result of a call.
    fn apply_changes(&self, id: ObjectId) -> PyResult<()> {
        let Some(recorded) = self.heap.recorded_changes(id) else { return Ok(()) };
        let object = self.get(id)?;
        match object.cast::<PyDict>() {
            Ok(dict) => recorded
                .items()
                .iter()
                .try_for_each(|(key, value)| dict.as_any().set_item(self.get(*key)?, self.get(*value)?))?,
            Err(_) if recorded.items().is_empty() => {}
            Err(_) => {
                self.hooks.call_method1("set_items", (&object, self.pairs(recorded.items())?))?;
            }
        }
        if !recorded.appends().is_empty() {
            self.hooks.call_method1("extend", (&object, self.get_all(recorded.appends())?))?;
        }
        for state in recorded.state() {
            let built = self.hooks.call_method1("build", (&object, self.get(*state)?));
            built.map_err(|error| self.call_error(id, error))?;
        }
        Ok(())
    }
}
