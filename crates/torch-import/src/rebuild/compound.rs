//! The rebuild functions for tensors that consist of several.
//!
//! Facts: `_rebuild_qtensor`, `_rebuild_sparse_tensor`, `_rebuild_nested_tensor`,
//! `_rebuild_meta_tensor_no_storage` and `_rebuild_wrapper_subclass` in `torch/_utils.py`.

use pickle_vm::ObjectId;
use tensor::{Dtype, Signs, Storage, Tensor};

use super::Rebuilder;
use super::sharded::{self, Sharded};
use crate::Result;
use crate::compound::{Compound, CompoundKind};
use crate::persistent::StorageRef;

/// `(storage, offset, size, stride, quantizer, …)`
pub(crate) fn quantized(rebuilder: &mut Rebuilder<'_>, id: ObjectId, args: &[ObjectId]) -> Result<Compound> {
    let heap = rebuilder.heap;
    let dtype = args.first().map(|storage| StorageRef::read(heap, *storage)).transpose()?;
    let dtype = dtype.and_then(|storage| storage.dtype);
    if let Some(packed @ (Dtype::QUInt4X2 | Dtype::QUInt2X4)) = dtype {
        let why = format!("{packed} packs several numbers into a byte, which is not supported");
        return Err(rebuilder.bad(id, &why));
    }
    let values = rebuilder.view(id, args, None, None)?;
    let dtype = values.dtype();
    let plain = match dtype {
        Dtype::QInt8 => Dtype::Int8,
        Dtype::QUInt8 => Dtype::UInt8,
        Dtype::QInt32 => Dtype::Int32,
        other => return Err(rebuilder.bad(id, &format!("quantized tensors of {other} are not supported"))),
    };
    let quantizer = args.get(4).and_then(|quantizer| heap.items(*quantizer)).unwrap_or_default();
    let &[scheme, scale, zero_point, ref axis @ ..] = quantizer else {
        return Err(rebuilder.bad(id, "expected a scheme, a scale and a zero point"));
    };
    let Some(("torch", scheme)) = heap.global(scheme) else {
        return Err(rebuilder.bad(id, "expected a quantization scheme"));
    };
    let axis = axis.first().map(|axis| rebuilder.number(id, *axis, "the axis")).transpose()?;
    let (scale, zero_point) = match axis {
        None => {
            let (Some(scale), Some(zero_point)) = (heap.float(scale), heap.int(zero_point)) else {
                return Err(rebuilder.bad(id, "expected a float and an integer to quantize by"));
            };
            (scalar(Dtype::Float64, &scale.to_le_bytes())?, scalar(Dtype::Int64, &zero_point.to_le_bytes())?)
        }
        Some(axis) => {
            let channels = usize::try_from(axis).ok().and_then(|axis| values.shape().get(axis).copied());
            let (scales, zero_points) = (channel(rebuilder, id, scale)?, channel(rebuilder, id, zero_point)?);
            if channels != Some(scales.numel()) || channels != Some(zero_points.numel()) {
                return Err(rebuilder.bad(
                    id,
                    &format!(
                        "axis {axis} of {:?} does not have {} scales and {} zero points",
                        values.shape(),
                        scales.numel(),
                        zero_points.numel()
                    ),
                ));
            }
            (scales, zero_points)
        }
    };
    let shape = values.shape().to_vec();
    let storage = values.storage().clone();
    let stride = values.stride().to_vec();
    let integers = Tensor::new(plain, shape.clone(), stride, values.storage_offset(), storage)?;
    Ok(Compound {
        kind: CompoundKind::Quantized { scheme: scheme.to_owned(), axis },
        dtype,
        shape,
        parts: vec![("int_repr", integers), ("scale", scale), ("zero_point", zero_point)],
    })
}

fn scalar(dtype: Dtype, bytes: &[u8]) -> Result<Tensor> {
    Ok(Tensor::new(dtype, Vec::new(), Vec::new(), 0, Storage::owned(bytes.to_vec()))?)
}

/// Scales or zero points, which are a tensor, or a list in old files.
fn channel(rebuilder: &mut Rebuilder<'_>, id: ObjectId, values: ObjectId) -> Result<Tensor> {
    let heap = rebuilder.heap;
    let Some(items) = heap.items(values) else { return rebuilder.part(values, id) };
    rebuilder.copies(id, items.len().saturating_mul(size_of::<u64>()))?;
    let integers = || items.iter().map(|item| Some(heap.int(*item)?.to_le_bytes()));
    let floats = || items.iter().map(|item| Some(heap.float(*item)?.to_le_bytes()));
    let (dtype, bytes) = match gather(integers()) {
        Some(bytes) => (Dtype::Int64, bytes),
        None => match gather(floats()) {
            Some(bytes) => (Dtype::Float64, bytes),
            None => return Err(rebuilder.bad(id, "expected numbers to quantize by")),
        },
    };
    Ok(Tensor::new(dtype, vec![items.len() as u64], vec![1], 0, Storage::owned(bytes))?)
}

/// The bytes of numbers, in no more memory than they need; `None` where one is of another type.
fn gather(numbers: impl ExactSizeIterator<Item = Option<[u8; 8]>>) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(numbers.len().saturating_mul(size_of::<u64>()));
    for number in numbers {
        bytes.extend(number?);
    }
    Some(bytes)
}

/// `(layout, data)`; `data` ends with the size, and for COO perhaps with whether it is coalesced. In a TorchScript
/// archive `(layout, size, requires_grad, part, …)`.
pub(crate) fn sparse(rebuilder: &mut Rebuilder<'_>, id: ObjectId, args: &[ObjectId]) -> Result<Compound> {
    let heap = rebuilder.heap;
    let (layout, data, size) = match *args {
        [layout, size, _, ref parts @ ..] if heap.int(layout).is_some() => {
            (layout_name(rebuilder, layout), parts, Some(size))
        }
        [layout, data, ..] => (layout_name(rebuilder, layout), heap.items(data).unwrap_or_default(), None),
        _ => (None, [].as_slice(), None),
    };
    let Some(layout) = layout else { return Err(rebuilder.bad(id, "expected a layout and its data")) };
    let names: &[&'static str] = match layout.as_str() {
        "sparse_coo" => &["indices", "values"],
        "sparse_csr" | "sparse_bsr" => &["crow_indices", "col_indices", "values"],
        "sparse_csc" | "sparse_bsc" => &["ccol_indices", "row_indices", "values"],
        other => {
            return Err(rebuilder.bad(id, &format!("layout `{}` is not supported", other.escape_debug())));
        }
    };
    let size = size.or_else(|| data.get(names.len()).copied());
    let (Some(data), Some(size)) = (data.get(..names.len()), size) else {
        return Err(rebuilder.bad(id, &format!("{layout} needs {} and its size", names.join(", "))));
    };
    let shape = rebuilder.numbers(id, size, "the size")?;
    let mut parts = Vec::new();
    for (name, part) in names.iter().zip(data) {
        parts.push((*name, rebuilder.part(*part, id)?));
    }
    let Some(dtype) = parts.last().map(|(_, values)| values.dtype()) else {
        return Err(rebuilder.bad(id, "it has no values"));
    };
    Ok(Compound { kind: CompoundKind::Sparse { layout }, dtype, shape, parts })
}

/// `torch.sparse_coo` as a global, `torch.serialization._get_layout('torch.sparse_coo')`, or in a TorchScript
/// archive the number that `c10/core/Layout.h` gives it.
fn layout_name(rebuilder: &Rebuilder<'_>, id: ObjectId) -> Option<String> {
    let heap = rebuilder.heap;
    if let Some(("torch", name)) = heap.global(id) {
        return Some(name.to_owned());
    }
    if let Some(number) = heap.int(id) {
        let names =
            ["strided", "sparse_coo", "sparse_csr", "_mkldnn", "sparse_csc", "sparse_bsr", "sparse_bsc"];
        return usize::try_from(number).ok().and_then(|number| Some((*names.get(number)?).to_owned()));
    }
    let &[name] = heap.items(heap.instance(id)?.args)? else { return None };
    Some(heap.text(name)?.trim_start_matches("torch.").to_owned())
}

/// `(values, sizes, strides, offsets)`
pub(crate) fn nested(rebuilder: &mut Rebuilder<'_>, id: ObjectId, args: &[ObjectId]) -> Result<Compound> {
    let mut parts = Vec::new();
    for (name, part) in ["values", "sizes", "strides", "offsets"].into_iter().zip(args) {
        // Offsets were a list before they were a tensor.
        parts.push((name, channel(rebuilder, id, *part)?));
    }
    let [(_, values), _, _, _] = parts.as_slice() else {
        return Err(rebuilder.bad(id, "expected values, sizes, strides and offsets"));
    };
    let (dtype, shape) = (values.dtype(), values.shape().to_vec());
    Ok(Compound { kind: CompoundKind::Nested, dtype, shape, parts })
}

/// `({'values': …, 'offsets': …, 'lengths': …, …},)`
pub(crate) fn jagged(rebuilder: &mut Rebuilder<'_>, id: ObjectId, args: &[ObjectId]) -> Result<Compound> {
    let heap = rebuilder.heap;
    let arguments = args.first().and_then(|dict| heap.entries(*dict)).unwrap_or_default();
    let mut parts = Vec::new();
    for name in ["values", "offsets", "lengths"] {
        let argument = arguments.iter().rev().find(|(key, _)| heap.text(*key).as_deref() == Some(name));
        if let Some((_, part)) = argument.filter(|(_, part)| !heap.is_none(*part)) {
            parts.push((name, rebuilder.part(*part, id)?));
        }
    }
    let [("values", values), ("offsets", _), ..] = parts.as_slice() else {
        return Err(rebuilder.bad(id, "expected values and offsets"));
    };
    let (dtype, shape) = (values.dtype(), values.shape().to_vec());
    Ok(Compound { kind: CompoundKind::Jagged, dtype, shape, parts })
}

/// `(dtype, size, stride, requires_grad)`
pub(crate) fn meta(rebuilder: &Rebuilder<'_>, id: ObjectId, args: &[ObjectId]) -> Result<Compound> {
    let dtype = rebuilder.dtype(id, args.first())?;
    let size = args.get(1).ok_or_else(|| rebuilder.bad(id, "expected a dtype and a size"))?;
    let shape = rebuilder.numbers(id, *size, "the size")?;
    let what = "a tensor on the meta device".to_owned();
    Ok(Compound { kind: CompoundKind::Meta { what }, dtype, shape, parts: Vec::new() })
}

/// `(class, dtype, size, …)`: a subclass of Tensor that keeps its data in its attributes.
pub(crate) fn subclass(
    rebuilder: &Rebuilder<'_>,
    id: ObjectId,
    class: Option<ObjectId>,
    args: &[ObjectId],
    shard: Option<&Sharded>,
) -> Result<Compound> {
    let mut compound = meta(rebuilder, id, args.get(1..).unwrap_or_default())?;
    let names = class.and_then(|class| rebuilder.heap.global(class));
    let what = match names {
        Some((_, "DTensor")) => format!(
            "{} (DTensor); gather it first with full_tensor() where it was saved",
            sharded::describe(&compound.shape, shard)
        ),
        Some((_, "ShardedTensor")) => format!(
            "{} (ShardedTensor); gather it first with gather() where it was saved",
            sharded::describe(&compound.shape, shard)
        ),
        Some((module, name)) => {
            format!(
                "a {}.{}, which keeps its data in its attributes",
                module.escape_debug(),
                name.escape_debug()
            )
        }
        None => "a tensor of a class without a name".to_owned(),
    };
    compound.kind = CompoundKind::Meta { what };
    Ok(compound)
}

/// The tensor with signs flipped: those of all numbers for `neg`, of imaginary parts for `conj`. It gets
/// a storage of its own, laid out as before.
pub(crate) fn with_signs(tensor: &Tensor, conj: bool, neg: bool) -> std::result::Result<Tensor, String> {
    let dtype = tensor.dtype();
    let complex = dtype.size() > dtype.component_size();
    let signed = matches!(dtype, Dtype::Float64 | Dtype::Float32 | Dtype::Float16 | Dtype::BFloat16);
    let signs = match (conj, neg) {
        (true, true) if complex => Signs::Real,
        (true, false) if complex => Signs::Imaginary,
        (false, _) if complex || signed => Signs::All,
        _ => return Err(format!("conj and neg bits on {dtype}")),
    };
    let storage = tensor.storage().with_signs(dtype.component_size(), signs);
    let (shape, stride) = (tensor.shape().to_vec(), tensor.stride().to_vec());
    Tensor::new(dtype, shape, stride, tensor.storage_offset(), storage).map_err(|error| error.to_string())
}
