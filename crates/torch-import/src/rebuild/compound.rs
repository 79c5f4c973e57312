//! Rebuilds compound tensors, which consist of several strided ones.
//!
//! Facts: `_rebuild_qtensor`, `_rebuild_sparse_tensor`, `_rebuild_nested_tensor` and
//! `_rebuild_meta_tensor_no_storage` in `torch/_utils.py`.

use std::borrow::Cow;

use pickle_vm::ObjectId;
use tensor::{CompoundKind, Dtype, NegConj, Storage, Tensor, contiguous_strides};

use super::call::{CallArgs, CallSnapshot};
use super::{Rebuilder, dtype};
use crate::Result;
use crate::compound::CompoundItem;

/// Rebuilds a quantized tensor from the arguments `(storage, offset, size, stride, quantizer, …)`.
pub(super) fn quantized<'h>(rebuilder: &mut Rebuilder<'h>, args: CallArgs<'h>) -> Result<CompoundItem> {
    let call = args.call;
    let bad = |reason: &str| call.call_error(reason);
    let stored =
        args.nth_argument(0).map(|storage| rebuilder.storage_argument(call, storage, None)).transpose()?;
    let packed = stored.and_then(|(dtype, storage)| {
        let is_packed = matches!(dtype?, Dtype::QUInt4X2 | Dtype::QUInt2X4);
        is_packed.then_some((dtype?, storage))
    });
    let (dtype, shape, integers) = if let Some((dtype, storage)) = packed {
        packed_integers(rebuilder, args, (dtype, storage))?
    } else {
        let values = rebuilder.strided_view(args, None, None)?;
        let plain = match values.dtype() {
            Dtype::QInt8 => Dtype::Int8,
            Dtype::QUInt8 => Dtype::UInt8,
            Dtype::QInt32 => Dtype::Int32,
            other => return Err(bad(&format!("quantized tensors of {other} are not supported"))),
        };
        let integers = values.with_storage(plain, values.storage_offset(), values.storage().clone())?;
        (values.dtype(), values.shape().to_vec(), integers)
    };
    let quantizer = args.nth_argument(4).map(|quantizer| call.items(quantizer)).transpose()?.flatten();
    let &[scheme, scale, zero_point, ref axis @ ..] = quantizer.unwrap_or_default() else {
        return Err(bad("expected a scheme, a scale and a zero point"));
    };
    let Some(("torch", mut scheme)) = call.global(scheme) else {
        return Err(bad("expected a quantization scheme"));
    };
    let axis = axis.first().map(|axis| call.number(*axis, "the axis")).transpose()?;
    let (scale, zero_point) = match axis {
        None => {
            let (Some(scale), Some(zero_point)) = (call.float(scale), call.int(zero_point)) else {
                return Err(bad("expected a float and an integer to quantize by"));
            };
            (scalar(Dtype::Float64, &scale.to_le_bytes())?, scalar(Dtype::Int64, &zero_point.to_le_bytes())?)
        }
        Some(axis) => {
            let channels = usize::try_from(axis).ok().and_then(|axis| shape.get(axis).copied());
            let scales = number_part(rebuilder, call, scale)?;
            let zero_points = number_part(rebuilder, call, zero_point)?;
            if channels != Some(scales.numel()) || channels != Some(zero_points.numel()) {
                return Err(bad(&format!(
                    "axis {axis} of {shape:?} does not have {} scales and {} zero points",
                    scales.numel(),
                    zero_points.numel()
                )));
            }
            // PyTorch writes the name of the other scheme, and decides by the dtype when it reads.
            if zero_points.dtype().is_floating_point() {
                scheme = "per_channel_affine_float_qparams";
            }
            (scales, zero_points)
        }
    };
    Ok(CompoundItem {
        kind: CompoundKind::Quantized { scheme: scheme.to_owned(), axis },
        dtype,
        shape,
        parts: named_parts([("int_repr", integers), ("scale", scale), ("zero_point", zero_point)]),
        shard: None,
    })
}

/// Returns the dtype and the shape of a tensor with several integers in a byte, and its bytes.
fn packed_integers<'h>(
    rebuilder: &Rebuilder<'h>,
    args: CallArgs<'h>,
    (dtype, storage): (Dtype, Storage),
) -> Result<(Dtype, Vec<u64>, Tensor)> {
    let call = args.call;
    let &[_, offset, size, stride, ..] = args.all() else {
        return Err(call.call_error("expected a storage, an offset, a size and a stride"));
    };
    let shape = rebuilder.unsigned_ints(call, size, "the size")?;
    let stride = rebuilder.unsigned_ints(call, stride, "the stride")?;
    if call.number(offset, "the storage offset")? != 0 || stride != contiguous_strides(&shape) {
        return Err(call.call_error(&format!("views of {dtype} are not supported, expected a whole tensor")));
    }
    let per_byte = if dtype == Dtype::QUInt4X2 { 2 } else { 4 };
    let numel = shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
    let bytes = numel.map(|numel| numel.div_ceil(per_byte)).filter(|bytes| *bytes <= storage.len());
    let Some(bytes) = bytes else {
        let stored = storage.len();
        return Err(call.call_error(&format!("{dtype} of the shape {shape:?} does not fit {stored} bytes")));
    };
    Ok((dtype, shape, Tensor::new(Dtype::UInt8, vec![bytes], vec![1], 0, storage)?))
}

/// Pairs the parts with the names that PyTorch uses.
fn named_parts(parts: impl IntoIterator<Item = (&'static str, Tensor)>) -> Vec<(Cow<'static, str>, Tensor)> {
    parts.into_iter().map(|(name, part)| (Cow::Borrowed(name), part)).collect()
}

fn scalar(dtype: Dtype, bytes: &[u8]) -> Result<Tensor> {
    Ok(Tensor::new(dtype, Vec::new(), Vec::new(), 0, Storage::owned(bytes.to_vec()))?)
}

/// Returns a part of numbers, such as the scales or zero points of channels: a tensor, or a list in old files.
fn number_part<'h>(
    rebuilder: &mut Rebuilder<'h>,
    call: CallSnapshot<'h>,
    values: ObjectId,
) -> Result<Tensor> {
    let Some(items) = call.items(values)? else { return rebuilder.strided_part(call, values) };
    rebuilder.spend_copied(call.id(), items.len().saturating_mul(size_of::<u64>()))?;
    let integers = || items.iter().map(|item| Some(call.int(*item)?.to_le_bytes()));
    let floats = || items.iter().map(|item| Some(call.float(*item)?.to_le_bytes()));
    let (dtype, bytes) = match concat_numbers(integers()) {
        Some(bytes) => (Dtype::Int64, bytes),
        None => match concat_numbers(floats()) {
            Some(bytes) => (Dtype::Float64, bytes),
            None => return Err(call.call_error("expected numbers to quantize by")),
        },
    };
    Ok(Tensor::new(dtype, vec![items.len() as u64], vec![1], 0, Storage::owned(bytes))?)
}

/// Concatenates the bytes of numbers in an allocation of the exact size; `None` if an item has another type.
fn concat_numbers(numbers: impl ExactSizeIterator<Item = Option<[u8; 8]>>) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(numbers.len().saturating_mul(size_of::<u64>()));
    for number in numbers {
        bytes.extend(number?);
    }
    Some(bytes)
}

/// Rebuilds a sparse tensor from the arguments `(layout, data)`. `data` ends with the size, and for COO optionally with
/// a flag for coalesced data. In a TorchScript archive the arguments are `(layout, size, requires_grad, part, …)`.
pub(super) fn sparse<'h>(rebuilder: &mut Rebuilder<'h>, args: CallArgs<'h>) -> Result<CompoundItem> {
    let call = args.call;
    let bad = |reason: &str| call.call_error(reason);
    let (layout, data, size) = match *args.all() {
        [layout, size, _, ref parts @ ..] if call.int(layout).is_some() => {
            (layout_name(call, layout)?, parts, Some(size))
        }
        [layout, data, ..] => (layout_name(call, layout)?, call.items(data)?.unwrap_or_default(), None),
        _ => (None, [].as_slice(), None),
    };
    let Some(layout) = layout else { return Err(bad("expected a layout and its data")) };
    let names: &[&'static str] = match layout.as_str() {
        "sparse_coo" => &["indices", "values"],
        "sparse_csr" | "sparse_bsr" => &["crow_indices", "col_indices", "values"],
        "sparse_csc" | "sparse_bsc" => &["ccol_indices", "row_indices", "values"],
        other => return Err(bad(&format!("layout `{}` is not supported", other.escape_debug()))),
    };
    let size = size.or_else(|| data.get(names.len()).copied());
    let (Some(data), Some(size)) = (data.get(..names.len()), size) else {
        return Err(bad(&format!("{layout} needs {} and its size", names.join(", "))));
    };
    let shape = rebuilder.unsigned_ints(call, size, "the size")?;
    let mut parts = Vec::new();
    for (name, part) in names.iter().zip(data) {
        parts.push((*name, rebuilder.strided_part(call, *part)?));
    }
    let Some(dtype) = parts.last().map(|(_, values)| values.dtype()) else {
        return Err(bad("it has no values"));
    };
    Ok(CompoundItem {
        kind: CompoundKind::Sparse { layout },
        dtype,
        shape,
        parts: named_parts(parts),
        shard: None,
    })
}

/// Returns the name of a layout: `torch.sparse_coo` as a global, `torch.serialization._get_layout('torch.sparse_coo')`,
/// or in a TorchScript archive its number in `c10/core/Layout.h`.
fn layout_name(call: CallSnapshot<'_>, id: ObjectId) -> Result<Option<String>> {
    if let Some(("torch", name)) = call.global(id) {
        return Ok(Some(name.to_owned()));
    }
    if let Some(number) = call.int(id) {
        let names =
            ["strided", "sparse_coo", "sparse_csr", "_mkldnn", "sparse_csc", "sparse_bsr", "sparse_bsc"];
        return Ok(usize::try_from(number).ok().and_then(|number| Some((*names.get(number)?).to_owned())));
    }
    let name = call.only_argument(id, &[("torch.serialization", "_get_layout")])?;
    let name = name.and_then(|name| call.text(name));
    Ok(name.map(|name| name.trim_start_matches("torch.").to_owned()))
}

/// Rebuilds a nested tensor from the arguments `(values, sizes, strides, offsets)`.
pub(super) fn nested<'h>(rebuilder: &mut Rebuilder<'h>, args: CallArgs<'h>) -> Result<CompoundItem> {
    let mut parts = Vec::new();
    for (name, part) in ["values", "sizes", "strides", "offsets"].into_iter().zip(args.all()) {
        // Early versions of PyTorch wrote the offsets as a list.
        parts.push((name, number_part(rebuilder, args.call, *part)?));
    }
    let [(_, values), _, _, _] = parts.as_slice() else {
        return Err(args.call.call_error("expected values, sizes, strides and offsets"));
    };
    let (dtype, shape) = (values.dtype(), values.shape().to_vec());
    Ok(CompoundItem { kind: CompoundKind::Nested, dtype, shape, parts: named_parts(parts), shard: None })
}

/// Rebuilds a jagged nested tensor from the arguments `({'values': …, 'offsets': …, 'lengths': …, …},)`.
pub(super) fn jagged<'h>(rebuilder: &mut Rebuilder<'h>, args: CallArgs<'h>) -> Result<CompoundItem> {
    let call = args.call;
    let arguments =
        args.nth_argument(0).map(|dict| call.entries(dict)).transpose()?.flatten().unwrap_or_default();
    let mut parts = Vec::new();
    for name in ["values", "offsets", "lengths"] {
        let argument = arguments.iter().rev().find(|(key, _)| call.text(*key).as_deref() == Some(name));
        if let Some((_, part)) = argument.filter(|(_, part)| !call.is_none(*part)) {
            parts.push((name, rebuilder.strided_part(call, *part)?));
        }
    }
    let [("values", values), ("offsets", _), ..] = parts.as_slice() else {
        return Err(call.call_error("expected values and offsets"));
    };
    let (dtype, shape) = (values.dtype(), values.shape().to_vec());
    Ok(CompoundItem { kind: CompoundKind::Jagged, dtype, shape, parts: named_parts(parts), shard: None })
}

/// Rebuilds a tensor without data from the arguments `(dtype, size, stride, requires_grad)`.
pub(super) fn meta<'h>(rebuilder: &Rebuilder<'h>, args: CallArgs<'h>) -> Result<CompoundItem> {
    let dtype = dtype(args.call, args.nth_argument(0))?;
    let size = args.nth_argument(1).ok_or_else(|| args.call.call_error("expected a dtype and a size"))?;
    let shape = rebuilder.unsigned_ints(args.call, size, "the size")?;
    let what = "a tensor on the meta device".to_owned();
    Ok(CompoundItem { kind: CompoundKind::Meta { what }, dtype, shape, parts: Vec::new(), shard: None })
}

/// Returns the tensor of a lazy module's parameter, whose shape nothing knows before the module is called.
pub(super) fn uninitialized() -> CompoundItem {
    let what = "an uninitialised parameter of a lazy module".to_owned();
    let kind = CompoundKind::Meta { what };
    CompoundItem { kind, dtype: Dtype::Float32, shape: Vec::new(), parts: Vec::new(), shard: None }
}

/// Applies the conj and neg bits in the metadata of a tensor to its values.
pub(super) fn apply_sign_bits(call: CallSnapshot<'_>, tensor: Tensor, metadata: ObjectId) -> Result<Tensor> {
    if call.is_none(metadata) {
        return Ok(tensor);
    }
    // TorchScript wraps the dict in a call that names the type and returns the dict itself.
    let tagged = call.without_type_tag(metadata)?.unwrap_or(metadata);
    let Some(entries) = call.entries(tagged)? else {
        return Err(call.call_error("its metadata is not a dict"));
    };
    let (mut conj, mut neg) = (false, false);
    for (key, value) in entries {
        // `{'neg': False}` sets the bit too: PyTorch looks for the key, and writes only bits that are set.
        match (call.text(key).as_deref(), call.bool(value)) {
            (Some("conj"), Some(_)) => conj = true,
            (Some("neg"), Some(_)) => neg = true,
            _ => return Err(call.call_error("its metadata has keys other than conj and neg")),
        }
    }
    if conj || neg {
        flip_signs(&tensor, conj, neg).map_err(|reason| call.call_error(&reason))
    } else {
        Ok(tensor)
    }
}

/// Flips the signs of all numbers for `neg`, and of imaginary parts for `conj`. The result has a storage of its own
/// with the same layout.
fn flip_signs(tensor: &Tensor, conj: bool, neg: bool) -> std::result::Result<Tensor, String> {
    let dtype = tensor.dtype();
    let complex = dtype.size() > dtype.component_size();
    let signed = matches!(dtype, Dtype::Float64 | Dtype::Float32 | Dtype::Float16 | Dtype::BFloat16);
    let signs = match (conj, neg) {
        (true, true) if complex => NegConj::Real,
        (true, false) if complex => NegConj::Imaginary,
        (false, _) if complex || signed => NegConj::All,
        _ => return Err(format!("conj and neg bits on {dtype}")),
    };
    let storage = tensor.storage().with_flipped_signs(dtype.component_size(), signs);
    let (shape, stride) = (tensor.shape().to_vec(), tensor.stride().to_vec());
    Tensor::new(dtype, shape, stride, tensor.storage_offset(), storage).map_err(|error| error.to_string())
}
