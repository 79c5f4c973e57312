//! Views of tensors by Python's subscripts: integers, slices, `...`, `None` and a bool, as NumPy indexes arrays.

use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PySlice, PyTuple};
use torch2carton::Tensor;

/// One item of a subscript.
enum Item<'py> {
    Integer(i64),
    Slice(Bound<'py, PySlice>),
    Ellipsis,
    /// None or True, which add a dimension of size 1, or False, which adds one of size 0.
    NewDimension {
        size: u64,
        is_bool: bool,
    },
}

/// Returns the view of `tensor` that a subscript selects. It shares the storage.
///
/// # Errors
/// `IndexError` for an index out of range or too many items, `ValueError` for a slice with a step below 1, `TypeError` for
/// anything else.
pub(crate) fn view(tensor: &Tensor, key: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let items = match key.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter().map(|item| read(&item)).collect::<PyResult<Vec<_>>>()?,
        Err(_) => vec![read(key)?],
    };
    let rank = tensor.shape().len();
    let used = items.iter().filter(|item| matches!(item, Item::Integer(_) | Item::Slice(_))).count();
    if used > rank {
        return Err(PyIndexError::new_err(format!("{used} indices for a tensor of {rank} dimensions")));
    }
    if items.iter().filter(|item| matches!(item, Item::Ellipsis)).count() > 1 {
        return Err(PyIndexError::new_err("an index can only have a single ellipsis ('...')"));
    }
    let bools = items.iter().filter(|item| matches!(item, Item::NewDimension { is_bool: true, .. })).count();
    if bools > 1 || (bools == 1 && items.iter().any(|item| matches!(item, Item::Integer(_)))) {
        let text = "a tensor of a file takes one bool as an index, without integers; call `.torch()` first";
        return Err(PyTypeError::new_err(text));
    }
    let (mut shape, mut stride, mut offset) = (Vec::new(), Vec::new(), tensor.storage_offset());
    let mut dims = tensor.shape().iter().copied().zip(tensor.stride().iter().copied()).enumerate();
    for item in &items {
        match item {
            Item::NewDimension { size, .. } => {
                shape.push(*size);
                stride.push(0);
            }
            Item::Ellipsis => {
                for (_, (size, step)) in dims.by_ref().take(rank.saturating_sub(used)) {
                    shape.push(size);
                    stride.push(step);
                }
            }
            Item::Integer(index) => {
                let Some((dim, (size, step))) = dims.next() else { break };
                let at = resolve(*index, size).ok_or_else(|| {
                    let text = format!("index {index} is out of range for dimension {dim} of size {size}");
                    PyIndexError::new_err(text)
                })?;
                offset = offset.saturating_add(at.saturating_mul(step));
            }
            Item::Slice(slice) => {
                let Some((_, (size, step))) = dims.next() else { break };
                let size =
                    isize::try_from(size).map_err(|_| PyIndexError::new_err("a dimension above 2^63"))?;
                let range = slice.indices(size)?;
                let by = u64::try_from(range.step).ok().filter(|by| *by > 0);
                let by = by.ok_or_else(|| PyValueError::new_err("step must be greater than zero"))?;
                let (start, len) = (u64::try_from(range.start).unwrap_or(0), range.slicelength as u64);
                if len > 0 {
                    offset = offset.saturating_add(start.saturating_mul(step));
                }
                shape.push(len);
                stride.push(step.saturating_mul(by));
            }
        }
    }
    for (_, (size, step)) in dims {
        shape.push(size);
        stride.push(step);
    }
    let made = Tensor::new(tensor.dtype(), shape, stride, offset, tensor.storage().clone());
    made.map_err(|error| PyIndexError::new_err(error.to_string()))
}

fn read<'py>(item: &Bound<'py, PyAny>) -> PyResult<Item<'py>> {
    if item.is_none() {
        return Ok(Item::NewDimension { size: 1, is_bool: false });
    }
    if item.is_instance_of::<PyEllipsis>() {
        return Ok(Item::Ellipsis);
    }
    if let Ok(slice) = item.cast::<PySlice>() {
        return Ok(Item::Slice(slice.clone()));
    }
    if let Ok(is_kept) = item.cast::<PyBool>() {
        return Ok(Item::NewDimension { size: u64::from(is_kept.is_true()), is_bool: true });
    }
    // A PyTorch tensor with one element has `__index__`, but only a scalar that is not a bool selects what an integer does.
    let is_array = item.getattr("ndim").is_ok_and(|ndim| !ndim.eq(0).unwrap_or(false));
    let dtype = item.getattr("dtype").map(|dtype| dtype.to_string()).unwrap_or_default();
    let integer = item.call_method0("__index__").and_then(|index| index.extract());
    integer.ok().filter(|_| !is_array && !dtype.ends_with("bool")).map(Item::Integer).ok_or_else(|| {
        let name = item.get_type().name().map_or_else(|_| "this".to_owned(), |name| name.to_string());
        PyTypeError::new_err(format!(
            "a tensor of a file takes integers, slices, `...` and None as indices, not {name}; call `.torch()` first"
        ))
    })
}

/// Returns the position of an index, which counts from the end if it is negative.
fn resolve(index: i64, size: u64) -> Option<u64> {
    let at = if index < 0 { size.checked_sub(index.unsigned_abs()) } else { u64::try_from(index).ok() };
    at.filter(|at| *at < size)
}
