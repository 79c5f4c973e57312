//! Reads the states of tensors that are split over ranks, with one rank's shard in the file.
//!
//! Facts: `torch/distributed/tensor/_api.py`, `_dtensor_spec.py`, `placement_types.py` and `device_mesh.py`,
//! `torch/distributed/_shard/sharded_tensor/api.py` of PyTorch 2.15; files that PyTorch 2.15 wrote.

use pickle_vm::ObjectId;

use super::call::CallSnapshot;
use crate::Result;

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

/// Returns the last value of `name` in a list of attributes.
fn last_attribute(
    then: CallSnapshot<'_>,
    attributes: &[(ObjectId, ObjectId)],
    name: &str,
) -> Option<ObjectId> {
    let found = attributes.iter().rev().find(|(key, _)| then.text(*key).as_deref() == Some(name));
    found.map(|(_, value)| *value)
}

/// Returns the attribute `name` that BUILD set on an object.
fn attribute(then: CallSnapshot<'_>, object: Option<ObjectId>, name: &str) -> Result<Option<ObjectId>> {
    let Some(object) = object else { return Ok(None) };
    Ok(last_attribute(then, &then.attributes(object)?, name))
}

/// Returns the items of the attribute `name` of an object.
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
    Ok(LocalShard { may_be_whole, rank, count, local })
}

/// Reads the state of a `ShardedTensor`, `(shards of this rank, metadata of all, process group, …)`.
pub(super) fn sharded_tensor(then: CallSnapshot<'_>, state: ObjectId) -> Result<LocalShard> {
    let parts = then.items(state)?.unwrap_or_default();
    let all = attribute_items(then, parts.get(1).copied(), "shards_metadata")?;
    let shards = parts.first().map(|shards| then.items(*shards)).transpose()?.flatten().unwrap_or_default();
    let mut local = Vec::new();
    for shard in shards {
        local.extend(attribute(then, Some(*shard), "tensor")?);
    }
    let metadata = attribute(then, shards.first().copied(), "metadata")?;
    let placement = attribute(then, metadata, "placement")?;
    let rank = attribute(then, placement, "_rank")?.and_then(|rank| then.int(rank));
    Ok(LocalShard { may_be_whole: true, rank, count: all.map(<[ObjectId]>::len), local })
}
