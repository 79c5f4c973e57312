//! Rebuilds NumPy arrays, which checkpoints hold in addition to their tensors.
//!
//! Facts: `numpy/core/src/multiarray/methods.c` (`array_reduce`, `array_setstate`) and `descriptor.c`
//! (`arraydescr_reduce`) of NumPy 1.26 and 2.3; `ml_dtypes` 0.6.

use pickle_vm::ObjectId;
use tensor::{ByteOrder, Dtype, Tensor, contiguous_strides};

use super::Rebuilder;
use super::call::{CallArgs, CallSnapshot, ResultState};
use crate::Result;

/// Rebuilds an array from the state `(version, shape, dtype, is_fortran, bytes)`; `None` unless its elements are
/// numbers.
pub(super) fn rebuild_array<'h>(rebuilder: &Rebuilder<'h>, state: ResultState<'h>) -> Result<Option<Tensor>> {
    let state = state.items()?;
    let &[_, shape, dtype, fortran, data] = state.all() else {
        return Err(state.call.call_error("its state is not that of an array"));
    };
    let fortran = match (state.call.bool(fortran), state.call.int(fortran)) {
        (Some(fortran), _) => fortran,
        (None, Some(fortran)) => fortran != 0,
        (None, None) => return Err(state.call.call_error("its state is not that of an array")),
    };
    array_tensor(rebuilder, state.call, &ArrayParts { shape, dtype, data, fortran })
}

/// Rebuilds an array from the arguments `(buffer, dtype, shape, order)`, which protocol 5 writes.
pub(super) fn rebuild_array_from_buffer<'h>(
    rebuilder: &Rebuilder<'h>,
    args: CallArgs<'h>,
) -> Result<Option<Tensor>> {
    let &[data, dtype, shape, order, ..] = args.all() else {
        return Err(args.call.call_error("expected a buffer, a dtype, a shape and an order"));
    };
    let fortran = args.call.text(order).as_deref() == Some("F");
    array_tensor(rebuilder, args.call, &ArrayParts { shape, dtype, data, fortran })
}

struct ArrayParts {
    shape: ObjectId,
    dtype: ObjectId,
    data: ObjectId,
    fortran: bool,
}

fn array_tensor<'h>(
    rebuilder: &Rebuilder<'h>,
    call: CallSnapshot<'h>,
    parts: &ArrayParts,
) -> Result<Option<Tensor>> {
    let Some((dtype, order)) = numpy_dtype(call, parts.dtype)? else { return Ok(None) };
    let shape: Option<Vec<u64>> = call
        .items(parts.shape)?
        .and_then(|shape| shape.iter().map(|size| u64::try_from(call.int(*size)?).ok()).collect());
    let Some(shape) = shape else {
        return Err(call.call_error("its shape is not a tuple of natural numbers"));
    };
    let Some(data) = call.bytes(parts.data)? else { return Err(call.call_error("its data is not bytes")) };
    let stride = if parts.fortran { fortran_strides(&shape) } else { contiguous_strides(&shape) };
    let storage = rebuilder
        .storage_from_bytes(call.id(), Some(parts.data), &data, 0..data.len())?
        .with_byte_order(order, dtype.component_size());
    Ok(Some(Tensor::new(dtype, shape, stride, 0, storage)?))
}

/// Returns the strides, in elements, of an array in Fortran order: the first dimension has stride 1.
fn fortran_strides(shape: &[u64]) -> Vec<u64> {
    let mut stride = 1_u64;
    let strides = shape.iter().map(|size| {
        let this = stride;
        stride = stride.saturating_mul((*size).max(1));
        this
    });
    strides.collect()
}

/// Dtypes of the package `ml_dtypes`, which JAX and TensorFlow use, that PyTorch has under the same names.
const ML_DTYPES: [&str; 6] =
    ["bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"];

/// Reads `numpy.dtype('f4', False, True)` with the state `(version, byte order, subarray, names, fields, …)`.
fn numpy_dtype(call: CallSnapshot<'_>, id: ObjectId) -> Result<Option<(Dtype, ByteOrder)>> {
    let Some(made) = call.call_result(id, &[("numpy", "dtype"), ("numpy.dtypes", "dtype")])? else {
        return Ok(None);
    };
    let Some(named) = made.args.first().copied() else { return Ok(None) };
    let code = call.text(named).unwrap_or_default();
    let dtype = match code.trim_start_matches(['<', '>', '|', '=']) {
        "" => match call.global(named) {
            Some(("ml_dtypes", name)) if ML_DTYPES.contains(&name) => match Dtype::from_name(name) {
                Some(dtype) => dtype,
                None => return Ok(None),
            },
            _ => return Ok(None),
        },
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
        _ => return Ok(None),
    };
    let mut order = if code.starts_with('>') { ByteOrder::Big } else { ByteOrder::Little };
    if let Some(state) = made.state {
        // A subarray or fields make it a structured dtype.
        let rest = state.get(2..5).unwrap_or_default();
        let known = match state.get(1).and_then(|order| call.text(*order)).as_deref() {
            Some(">") => Some(ByteOrder::Big),
            Some("<" | "|" | "=") => Some(ByteOrder::Little),
            _ => None,
        };
        match known {
            Some(known) if rest.iter().all(|field| call.is_none(*field)) => order = known,
            _ => return Err(call.call_error("the state of its dtype is not that of a dtype of numbers")),
        }
    }
    Ok(Some((dtype, order)))
}
