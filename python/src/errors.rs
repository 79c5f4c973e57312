//! Errors of the library as Python exceptions, whose classes are in `torch2carton/_errors.py`.

use std::any::Any;
use std::path::Path;

use pyo3::prelude::*;
use torch2carton::crates::byte_source;
use torch2carton::{Error, ErrorKind, Place};

/// Returns the exception for an error of the library. `path` is the file of the call, for errors that name none.
pub(crate) fn exception(py: Python<'_>, error: &Error, path: Option<&Path>) -> PyErr {
    make(py, error.kind(), &error.to_string(), &error.location(), path)
}

/// Returns the exception for an error of reading elements of the tensor `name`.
pub(crate) fn read_exception(py: Python<'_>, error: byte_source::Error, path: &Path, name: &str) -> PyErr {
    let error = error.in_tensor(name);
    let mut location = error.location();
    location.tensor.get_or_insert_with(|| name.to_owned());
    make(py, error.kind(), &error.to_string(), &location, Some(path))
}

/// Returns an exception of the package with its own text.
pub(crate) fn own(py: Python<'_>, kind: ErrorKind, text: &str) -> PyErr {
    make(py, kind, text, &Place::default(), None)
}

/// Returns an exception of the package about a file, with its own text.
pub(crate) fn of_file(py: Python<'_>, kind: ErrorKind, text: &str, path: Option<&Path>) -> PyErr {
    make(py, kind, text, &Place::default(), path)
}

fn make(py: Python<'_>, kind: ErrorKind, text: &str, location: &Place, path: Option<&Path>) -> PyErr {
    let path = location.path.as_deref().or(path).map(Path::as_os_str);
    let made = py.import("torch2carton._errors").and_then(|errors| {
        let arguments = (kind.name(), text, path, location.tensor.as_deref(), location.offset);
        errors.call_method1("make", arguments)
    });
    match made {
        Ok(made) => PyErr::from_value(made),
        Err(error) => error,
    }
}

/// Returns the exception for a panic, which is always a bug.
pub(crate) fn panic_exception(py: Python<'_>, panic: &(dyn Any + Send)) -> PyErr {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    let made = py.import("torch2carton._errors").and_then(|errors| errors.call_method1("internal", (text,)));
    match made {
        Ok(made) => PyErr::from_value(made),
        Err(error) => error,
    }
}
