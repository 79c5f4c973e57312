//! NumPy arrays, which checkpoints hold in addition to their tensors.
//!
//! Facts: `numpy/core/src/multiarray/methods.c` (`array_reduce`, `array_setstate`) and `descriptor.c`
//! (`arraydescr_reduce`) of NumPy 1.26 and 2.3.

use pickle_vm::{Heap, ObjectId};
use tensor::{ByteOrder, Dtype, Tensor, contiguous_strides};

use super::{Rebuilder, bad};
use crate::Result;
use crate::encoded::bytes;

/// An array whose state is `(version, shape, dtype, is_fortran, bytes)`; `None` for arrays of
/// anything but numbers.
pub(crate) fn array(rebuilder: &Rebuilder<'_>, id: ObjectId) -> Result<Option<Tensor>> {
    let heap = rebuilder.heap;
    let state = heap.instance(id).and_then(|instance| instance.state().last().copied());
    let Some(&[_, shape, dtype, fortran, data]) = state.and_then(|state| heap.items(state)) else {
        return Err(bad(heap, id, "its state is not that of an array"));
    };
    tensor(rebuilder, id, &Parts { shape, dtype, data, fortran: heap.bool(fortran) == Some(true) })
}

/// `(buffer, dtype, shape, order)`, which protocol 5 writes.
pub(crate) fn buffer(rebuilder: &Rebuilder<'_>, id: ObjectId, args: &[ObjectId]) -> Result<Option<Tensor>> {
    let heap = rebuilder.heap;
    let &[data, dtype, shape, order, ..] = args else {
        return Err(bad(heap, id, "expected a buffer, a dtype, a shape and an order"));
    };
    let fortran = heap.text(order).as_deref() == Some("F");
    tensor(rebuilder, id, &Parts { shape, dtype, data, fortran })
}

struct Parts {
    shape: ObjectId,
    dtype: ObjectId,
    data: ObjectId,
    fortran: bool,
}

fn tensor(rebuilder: &Rebuilder<'_>, id: ObjectId, parts: &Parts) -> Result<Option<Tensor>> {
    let heap = rebuilder.heap;
    let Some((dtype, order)) = dtype(heap, parts.dtype) else { return Ok(None) };
    let shape: Option<Vec<u64>> = heap
        .items(parts.shape)
        .and_then(|shape| shape.iter().map(|size| u64::try_from(heap.int(*size)?).ok()).collect());
    let Some(shape) = shape else { return Err(bad(heap, id, "its shape is not a tuple of natural numbers")) };
    let Some(data) = bytes(heap, parts.data) else { return Err(bad(heap, id, "its data is not bytes")) };
    let stride = if parts.fortran { fortran_strides(&shape) } else { contiguous_strides(&shape) };
    let storage = rebuilder.storage_from_bytes(id, &data)?.with_byte_order(order, dtype.component_size());
    Ok(Some(Tensor::new(dtype, shape, stride, 0, storage)?))
}

/// The strides, in elements, of an array in Fortran order: the first dimension has stride 1.
fn fortran_strides(shape: &[u64]) -> Vec<u64> {
    let mut stride = 1_u64;
    let strides = shape.iter().map(|size| {
        let this = stride;
        stride = stride.saturating_mul((*size).max(1));
        this
    });
    strides.collect()
}

/// `numpy.dtype('f4', …)` with the state `(version, byte order, …)`.
fn dtype(heap: &Heap<'_>, id: ObjectId) -> Option<(Dtype, ByteOrder)> {
    let instance = heap.instance(id)?;
    let code = heap.text(*heap.items(instance.args)?.first()?)?;
    let dtype = match code.trim_start_matches(['<', '>', '|', '=']) {
        "f8" => Dtype::Float64,
        "f4" => Dtype::Float32,
        "f2" => Dtype::Float16,
        "i8" => Dtype::Int64,
        "i4" => Dtype::Int32,
        "i2" => Dtype::Int16,
        "i1" => Dtype::Int8,
        "u8" => Dtype::UInt64,
        "u4" => Dtype::UInt32,
        "u2" => Dtype::UInt16,
        "u1" => Dtype::UInt8,
        "b1" => Dtype::Bool,
        "c16" => Dtype::Complex128,
        "c8" => Dtype::Complex64,
        _ => return None,
    };
    let state = instance.state().last().and_then(|state| heap.items(*state)?.get(1));
    let order = state.and_then(|order| heap.text(*order));
    let big = code.starts_with('>') || order.as_deref() == Some(">");
    Some((dtype, if big { ByteOrder::Big } else { ByteOrder::Little }))
}
