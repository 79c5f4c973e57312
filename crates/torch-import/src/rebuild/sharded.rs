//! Tensors that are split over ranks, with one rank's shard in the file.
//!
//! Facts: `torch/distributed/tensor/_api.py`, `_dtensor_spec.py`, `placement_types.py` and `device_mesh.py`,
//! `torch/distributed/_shard/sharded_tensor/api.py` of PyTorch 2.15; files that it wrote.

use pickle_vm::{Heap, ObjectId};

use crate::encoded::attributes;

/// What the state of such a tensor describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharded {
    /// Every rank holds all of it, as this tensor.
    Copy(ObjectId),
    /// One rank's part. The rank and the number of ranks are `None` if the state does not have them.
    Shard { rank: Option<i64>, count: Option<usize> },
}

impl Sharded {
    /// The shard that `state` describes, for a tensor of `class`; `None` for classes that are not sharded.
    pub(crate) fn from_state(heap: &Heap<'_>, class: ObjectId, state: ObjectId) -> Option<Self> {
        match heap.global(class)?.1 {
            "DTensor" => dtensor(heap, state),
            "ShardedTensor" => Some(sharded_tensor(heap, state)),
            _ => None,
        }
    }
}

/// A description such as `a shard of [4096, 4096], rank 0 of 8`.
pub(crate) fn describe(shape: &[u64], shard: Option<&Sharded>) -> String {
    let place = match shard {
        Some(Sharded::Shard { rank: Some(rank), count: Some(count) }) => format!(", rank {rank} of {count}"),
        Some(Sharded::Shard { rank: None, count: Some(count) }) => format!(", one of {count}"),
        _ => String::new(),
    };
    format!("a shard of {shape:?}{place}")
}

/// The attribute `name` that a state sets.
fn state_attribute(heap: &Heap<'_>, state: ObjectId, name: &str) -> Option<ObjectId> {
    let attributes = attributes(heap, state);
    let found = attributes.into_iter().rev().find(|(key, _)| heap.text(*key).as_deref() == Some(name));
    found.map(|(_, value)| value)
}

fn attribute(heap: &Heap<'_>, instance: ObjectId, name: &str) -> Option<ObjectId> {
    state_attribute(heap, *heap.instance(instance)?.state().last()?, name)
}

fn dtensor(heap: &Heap<'_>, state: ObjectId) -> Option<Sharded> {
    let spec = state_attribute(heap, state, "_spec")?;
    let placements =
        attribute(heap, spec, "placements").and_then(|list| heap.items(list)).unwrap_or_default();
    let is_copy = |id: &ObjectId| {
        let class = heap.instance(*id).and_then(|instance| heap.global(instance.callable));
        class.is_some_and(|(_, name)| name == "Replicate")
    };
    if !placements.is_empty() && placements.iter().all(is_copy) {
        return state_attribute(heap, state, "_local_tensor").map(Sharded::Copy);
    }
    let mesh = attribute(heap, spec, "mesh")?;
    let mut ranks = ["_flatten_rank_map", "_flatten_mesh_list"].iter();
    let ranks = ranks.find_map(|name| heap.items(attribute(heap, mesh, name)?));
    let count = ranks.map(<[ObjectId]>::len);
    let rank = attribute(heap, mesh, "_rank").and_then(|rank| heap.int(rank)).or_else(|| {
        // Older files have the rank's coordinate in the mesh, which is enough in one dimension.
        match heap.items(attribute(heap, mesh, "_coordinate_on_dim")?)? {
            &[place] => heap.int(*ranks?.get(usize::try_from(heap.int(place)?).ok()?)?),
            _ => None,
        }
    });
    Some(Sharded::Shard { rank, count })
}

/// The state is `(shards of this rank, metadata of all, process group, …)`.
fn sharded_tensor(heap: &Heap<'_>, state: ObjectId) -> Sharded {
    let parts = heap.items(state).unwrap_or_default();
    let all = parts.get(1).and_then(|metadata| heap.items(attribute(heap, *metadata, "shards_metadata")?));
    let first = parts.first().and_then(|shards| heap.items(*shards)?.first().copied());
    let rank = first.and_then(|shard| {
        let placement = attribute(heap, attribute(heap, shard, "metadata")?, "placement")?;
        heap.int(attribute(heap, placement, "_rank")?)
    });
    Sharded::Shard { rank, count: all.map(<[ObjectId]>::len) }
}
