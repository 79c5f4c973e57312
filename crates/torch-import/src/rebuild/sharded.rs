//! Reads the states of tensors that are split over ranks, with one rank's shard in the file.
//!
//! Facts: `torch/distributed/tensor/_api.py`, `_dtensor_spec.py`, `placement_types.py` and `device_mesh.py`,
//! `torch/distributed/_shard/sharded_tensor/api.py` of PyTorch 2.15; files that PyTorch 2.15 wrote.

use pickle_vm::ObjectId;

use super::call::CallSnapshot;
use crate::Result;
use crate::shard_position::{MeshDimension, Placement, ShardPosition};

/// One rank's shard of a distributed tensor, as its state describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LocalShard {
    /// True if a local tensor of the whole shape is the whole tensor, and not an addend of a sum over ranks.
    pub(super) may_be_whole: bool,
    /// Rank and number of ranks, if the state has them.
    rank: Option<i64>,
    count: Option<usize>,
    /// Local tensors of this rank.
    pub(super) local: Vec<ObjectId>,
    /// Position of the local tensors in the whole; `None` if the state does not have it.
    pub(super) position: Option<ShardPosition>,
}

impl LocalShard {
    /// Formats a description such as `a shard of [4096, 4096], rank 0 of 8`.
    pub(super) fn describe(&self, shape: &[u64]) -> String {
        let place = match (self.rank, self.count) {
            (Some(rank), Some(count)) => format!(", rank {rank} of {count}"),
            (None, Some(count)) => format!(", one of {count}"),
            _ => String::new(),
        };
        format!("a shard of {shape:?}{place}")
    }
}

fn last_attribute(
    call: CallSnapshot<'_>,
    attributes: &[(ObjectId, ObjectId)],
    name: &str,
) -> Option<ObjectId> {
    let found = attributes.iter().rev().find(|(key, _)| call.text(*key).as_deref() == Some(name));
    found.map(|(_, value)| *value)
}

fn attribute(call: CallSnapshot<'_>, object: Option<ObjectId>, name: &str) -> Result<Option<ObjectId>> {
    let Some(object) = object else { return Ok(None) };
    Ok(last_attribute(call, &call.attributes(object)?, name))
}

fn attribute_items<'h>(
    call: CallSnapshot<'h>,
    object: Option<ObjectId>,
    name: &str,
) -> Result<Option<&'h [ObjectId]>> {
    let list = attribute(call, object, name)?;
    Ok(list.map(|list| call.items(list)).transpose()?.flatten())
}

/// Reads the state of a `DTensor`, a dict with `_local_tensor` and `_spec`.
pub(super) fn dtensor(call: CallSnapshot<'_>, state: ObjectId) -> Result<LocalShard> {
    let attributes = call.state_attributes(state)?;
    let spec = last_attribute(call, &attributes, "_spec");
    let placements = attribute_items(call, spec, "placements")?.unwrap_or_default();
    let mesh = attribute(call, spec, "mesh")?;
    let mut ranks = None;
    for name in ["_flatten_rank_map", "_flatten_mesh_list"] {
        ranks = ranks.or(attribute_items(call, mesh, name)?);
    }
    let count = ranks.map(<[ObjectId]>::len);
    let rank = attribute(call, mesh, "_rank")?.and_then(|rank| call.int(rank));
    let coordinate = attribute_items(call, mesh, "_coordinate_on_dim")?.unwrap_or_default();
    let rank = rank.or_else(|| match coordinate {
        // Older files have the rank's coordinate in the mesh, which suffices in one dimension.
        &[place] => call.int(*ranks?.get(usize::try_from(call.int(place)?).ok()?)?),
        _ => None,
    });
    let is_part = |id: &ObjectId| {
        let class = call.class(*id).map(|(_, name)| name);
        matches!(class, Some("Shard" | "Replicate" | "_StridedShard"))
    };
    let may_be_whole = count == Some(1) || !placements.is_empty() && placements.iter().all(is_part);
    let local = last_attribute(call, &attributes, "_local_tensor").into_iter().collect();
    let position = mesh_position(call, mesh, placements, coordinate)?;
    Ok(LocalShard { may_be_whole, rank, count, local, position })
}

/// Largest number of dimensions of a tensor or a mesh.
const DIMENSIONS_MAX: usize = 64;

/// Returns numbers that are not negative; `None` if one is.
fn numbers(call: CallSnapshot<'_>, list: &[ObjectId]) -> Option<Vec<u64>> {
    if list.len() > DIMENSIONS_MAX {
        return None;
    }
    list.iter().map(|number| u64::try_from(call.int(*number)?).ok()).collect()
}

/// Returns the number of ranks along each dimension of a mesh. Since PyTorch 2.10, a mesh has a layout, whose axes have
/// shapes; before, it has a tensor of ranks.
fn mesh_sizes(call: CallSnapshot<'_>, mesh: Option<ObjectId>) -> Result<Option<Vec<u64>>> {
    let product =
        |numbers: Vec<u64>| numbers.iter().fold(1_u64, |product, size| product.saturating_mul(*size));
    let layout = attribute(call, mesh, "_layout")?;
    if let Some(axes) = attribute_items(call, layout, "axes")? {
        let mut sizes = Vec::new();
        for axis in axes.iter().take(DIMENSIONS_MAX) {
            let shape = attribute_items(call, Some(*axis), "shape")?.and_then(|shape| numbers(call, shape));
            let Some(shape) = shape else { return Ok(None) };
            sizes.push(product(shape));
        }
        return Ok(Some(sizes));
    }
    if let Some(shape) = attribute(call, layout, "shape")? {
        let Some(items) = call.items(shape)? else {
            return Ok(call.int(shape).and_then(|size| Some(vec![u64::try_from(size).ok()?])));
        };
        let mut sizes = Vec::new();
        for item in items.iter().take(DIMENSIONS_MAX) {
            // An axis of several axes of the root mesh is a tuple of their sizes.
            let inner = call.items(*item)?.unwrap_or(std::slice::from_ref(item));
            let Some(inner) = numbers(call, inner) else { return Ok(None) };
            sizes.push(product(inner));
        }
        return Ok(Some(sizes));
    }
    let Some(tensor) = attribute(call, mesh, "mesh")? else { return Ok(None) };
    let Some((_, "_rebuild_tensor_v2")) = call.class(tensor) else { return Ok(None) };
    let Some(sizes) = call.call_arguments(tensor)?.get(2).copied() else { return Ok(None) };
    Ok(call.items(sizes)?.and_then(|sizes| numbers(call, sizes)))
}

fn mesh_position(
    call: CallSnapshot<'_>,
    mesh: Option<ObjectId>,
    placements: &[ObjectId],
    coordinate: &[ObjectId],
) -> Result<Option<ShardPosition>> {
    let Some(sizes) = mesh_sizes(call, mesh)? else { return Ok(None) };
    let Some(coordinate) = numbers(call, coordinate) else { return Ok(None) };
    if sizes.len() != coordinate.len() || sizes.len() != placements.len() {
        return Ok(None);
    }
    let mut dimensions = Vec::new();
    for ((ranks, index), placement) in sizes.into_iter().zip(coordinate).zip(placements) {
        let number = |name: &str| -> Result<Option<u64>> {
            let found = attribute(call, Some(*placement), name)?;
            Ok(found.and_then(|number| u64::try_from(call.int(number)?).ok()))
        };
        let placement = match (call.class(*placement).map(|(_, name)| name), number("dim")?) {
            (Some("Replicate"), _) => Placement::Replicate,
            (Some("Shard"), Some(dim)) => Placement::Shard { dim },
            (Some("_StridedShard"), Some(dim)) => match number("split_factor")? {
                Some(pieces) => Placement::StridedShard { dim, pieces },
                None => return Ok(None),
            },
            (Some("Partial" | "_Partial" | "_MaskPartial"), _) => Placement::Partial,
            _ => return Ok(None),
        };
        dimensions.push(MeshDimension { ranks, index, placement });
    }
    Ok(Some(ShardPosition::Mesh(dimensions)))
}

/// Reads the state of a `ShardedTensor`, `(shards of this rank, metadata of all, process group, …)`.
pub(super) fn sharded_tensor(call: CallSnapshot<'_>, state: ObjectId) -> Result<LocalShard> {
    let parts = call.items(state)?.unwrap_or_default();
    let all = attribute_items(call, parts.get(1).copied(), "shards_metadata")?;
    let shards = parts.first().map(|shards| call.items(*shards)).transpose()?.flatten().unwrap_or_default();
    let (mut local, mut boxes) = (Vec::new(), Vec::new());
    for shard in shards {
        let metadata = attribute(call, Some(*shard), "metadata")?;
        let start = attribute_items(call, metadata, "shard_offsets")?.and_then(|list| numbers(call, list));
        let sizes = attribute_items(call, metadata, "shard_sizes")?.and_then(|list| numbers(call, list));
        local.extend(attribute(call, Some(*shard), "tensor")?);
        boxes.extend(start.zip(sizes));
    }
    let rank_of = |metadata: Option<ObjectId>| -> Result<Option<i64>> {
        let placement = attribute(call, metadata, "placement")?;
        Ok(attribute(call, placement, "_rank")?.and_then(|rank| call.int(rank)))
    };
    let mut last = None;
    for metadata in all.unwrap_or_default() {
        last = last.max(rank_of(Some(*metadata))?);
    }
    let ranks = last.and_then(|last| u64::try_from(last).ok()?.checked_add(1));
    let position = (boxes.len() == local.len()).then_some(ShardPosition::Boxes { boxes, ranks });
    let rank = rank_of(attribute(call, shards.first().copied(), "metadata")?)?;
    Ok(LocalShard { may_be_whole: true, rank, count: all.map(<[ObjectId]>::len), local, position })
}
