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
    then: CallSnapshot<'_>,
    attributes: &[(ObjectId, ObjectId)],
    name: &str,
) -> Option<ObjectId> {
    let found = attributes.iter().rev().find(|(key, _)| then.text(*key).as_deref() == Some(name));
    found.map(|(_, value)| *value)
}

fn attribute(then: CallSnapshot<'_>, object: Option<ObjectId>, name: &str) -> Result<Option<ObjectId>> {
    let Some(object) = object else { return Ok(None) };
    Ok(last_attribute(then, &then.attributes(object)?, name))
}

fn attribute_items<'h>(
    then: CallSnapshot<'h>,
    object: Option<ObjectId>,
    name: &str,
) -> Result<Option<&'h [ObjectId]>> {
    let list = attribute(then, object, name)?;
    Ok(list.map(|list| then.items(list)).transpose()?.flatten())
}

/// Reads the state of a `DTensor`, a dict with `_local_tensor` and `_spec`.
pub(super) fn dtensor(then: CallSnapshot<'_>, state: ObjectId) -> Result<LocalShard> {
    let attributes = then.state_attributes(state)?;
    let spec = last_attribute(then, &attributes, "_spec");
    let placements = attribute_items(then, spec, "placements")?.unwrap_or_default();
    let mesh = attribute(then, spec, "mesh")?;
    let mut ranks = None;
    for name in ["_flatten_rank_map", "_flatten_mesh_list"] {
        ranks = ranks.or(attribute_items(then, mesh, name)?);
    }
    let count = ranks.map(<[ObjectId]>::len);
    let rank = attribute(then, mesh, "_rank")?.and_then(|rank| then.int(rank));
    let coordinate = attribute_items(then, mesh, "_coordinate_on_dim")?.unwrap_or_default();
    let rank = rank.or_else(|| match coordinate {
        // Older files have the rank's coordinate in the mesh, which suffices in one dimension.
        &[place] => then.int(*ranks?.get(usize::try_from(then.int(place)?).ok()?)?),
        _ => None,
    });
    let is_part = |id: &ObjectId| {
        let class = then.class(*id).map(|(_, name)| name);
        matches!(class, Some("Shard" | "Replicate" | "_StridedShard"))
    };
    let may_be_whole = count == Some(1) || !placements.is_empty() && placements.iter().all(is_part);
    let local = last_attribute(then, &attributes, "_local_tensor").into_iter().collect();
    let position = mesh_position(then, mesh, placements, coordinate)?;
    Ok(LocalShard { may_be_whole, rank, count, local, position })
}

/// Largest number of dimensions of a tensor or a mesh.
const DIMENSIONS_MAX: usize = 64;

/// Returns numbers that are not negative; `None` if one is.
fn numbers(then: CallSnapshot<'_>, list: &[ObjectId]) -> Option<Vec<u64>> {
    if list.len() > DIMENSIONS_MAX {
        return None;
    }
    list.iter().map(|number| u64::try_from(then.int(*number)?).ok()).collect()
}

/// Returns the number of ranks along each dimension of a mesh. Since PyTorch 2.10, a mesh has a layout, whose axes have
/// shapes; before, it has a tensor of ranks.
fn mesh_sizes(then: CallSnapshot<'_>, mesh: Option<ObjectId>) -> Result<Option<Vec<u64>>> {
    let product =
        |numbers: Vec<u64>| numbers.iter().fold(1_u64, |product, size| product.saturating_mul(*size));
    let layout = attribute(then, mesh, "_layout")?;
    if let Some(axes) = attribute_items(then, layout, "axes")? {
        let mut sizes = Vec::new();
        for axis in axes.iter().take(DIMENSIONS_MAX) {
            let shape = attribute_items(then, Some(*axis), "shape")?.and_then(|shape| numbers(then, shape));
            let Some(shape) = shape else { return Ok(None) };
            sizes.push(product(shape));
        }
        return Ok(Some(sizes));
    }
    if let Some(shape) = attribute(then, layout, "shape")? {
        let Some(items) = then.items(shape)? else {
            return Ok(then.int(shape).and_then(|size| Some(vec![u64::try_from(size).ok()?])));
        };
        let mut sizes = Vec::new();
        for item in items.iter().take(DIMENSIONS_MAX) {
            // An axis of several axes of the root mesh is a tuple of their sizes.
            let inner = then.items(*item)?.unwrap_or(std::slice::from_ref(item));
            let Some(inner) = numbers(then, inner) else { return Ok(None) };
            sizes.push(product(inner));
        }
        return Ok(Some(sizes));
    }
    let Some(tensor) = attribute(then, mesh, "mesh")? else { return Ok(None) };
    let Some((_, "_rebuild_tensor_v2")) = then.class(tensor) else { return Ok(None) };
    let Some(sizes) = then.call_arguments(tensor)?.get(2).copied() else { return Ok(None) };
    Ok(then.items(sizes)?.and_then(|sizes| numbers(then, sizes)))
}

fn mesh_position(
    then: CallSnapshot<'_>,
    mesh: Option<ObjectId>,
    placements: &[ObjectId],
    coordinate: &[ObjectId],
) -> Result<Option<ShardPosition>> {
    let Some(sizes) = mesh_sizes(then, mesh)? else { return Ok(None) };
    let Some(coordinate) = numbers(then, coordinate) else { return Ok(None) };
    if sizes.len() != coordinate.len() || sizes.len() != placements.len() {
        return Ok(None);
    }
    let mut dimensions = Vec::new();
    for ((ranks, index), placement) in sizes.into_iter().zip(coordinate).zip(placements) {
        let number = |name: &str| -> Result<Option<u64>> {
            let found = attribute(then, Some(*placement), name)?;
            Ok(found.and_then(|number| u64::try_from(then.int(number)?).ok()))
        };
        let placement = match (then.class(*placement).map(|(_, name)| name), number("dim")?) {
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
pub(super) fn sharded_tensor(then: CallSnapshot<'_>, state: ObjectId) -> Result<LocalShard> {
    let parts = then.items(state)?.unwrap_or_default();
    let all = attribute_items(then, parts.get(1).copied(), "shards_metadata")?;
    let shards = parts.first().map(|shards| then.items(*shards)).transpose()?.flatten().unwrap_or_default();
    let (mut local, mut boxes) = (Vec::new(), Vec::new());
    for shard in shards {
        let metadata = attribute(then, Some(*shard), "metadata")?;
        let start = attribute_items(then, metadata, "shard_offsets")?.and_then(|list| numbers(then, list));
        let sizes = attribute_items(then, metadata, "shard_sizes")?.and_then(|list| numbers(then, list));
        local.extend(attribute(then, Some(*shard), "tensor")?);
        boxes.extend(start.zip(sizes));
    }
    let position = (boxes.len() == local.len()).then_some(ShardPosition::Boxes(boxes));
    let metadata = attribute(then, shards.first().copied(), "metadata")?;
    let placement = attribute(then, metadata, "placement")?;
    let rank = attribute(then, placement, "_rank")?.and_then(|rank| then.int(rank));
    Ok(LocalShard { may_be_whole: true, rank, count: all.map(<[ObjectId]>::len), local, position })
}
