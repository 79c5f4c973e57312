//! Tensors of which a file holds one rank's shard.
//!
//! Facts: `torch/distributed/tensor/_api.py`, `_dtensor_spec.py`, `placement_types.py` and `device_mesh.py`,
//! `torch/distributed/_shard/sharded_tensor/api.py` of PyTorch 2.15; files that it wrote.

use pickle_vm::{Heap, ObjectId};

use crate::encoded::attributes;

/// What the state of such a tensor tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharded {
    /// Every rank holds all of it: this tensor.
    Copy(ObjectId),
    /// One rank's part. Which rank, and how many there are, where the state tells.
    Shard { rank: Option<i64>, of: Option<usize> },
}

/// What `state` says of a tensor of `class`; `None` for other classes.
pub(crate) fn of(heap: &Heap<'_>, class: ObjectId, state: ObjectId) -> Option<Sharded> {
    match heap.global(class)?.1 {
        "DTensor" => dtensor(heap, state),
        "ShardedTensor" => Some(sharded_tensor(heap, state)),
        _ => None,
    }
}

/// Such as `a shard of [4096, 4096], rank 0 of 8`.
pub(crate) fn text(shape: &[u64], shard: Option<&Sharded>) -> String {
    let place = match shard {
        Some(Sharded::Shard { rank: Some(rank), of: Some(of) }) => format!(", rank {rank} of {of}"),
        Some(Sharded::Shard { rank: None, of: Some(of) }) => format!(", one of {of}"),
        _ => String::new(),
    };
    format!("a shard of {shape:?}{place}")
}

/// The attribute `name` that a state sets.
fn of_state(heap: &Heap<'_>, state: ObjectId, name: &str) -> Option<ObjectId> {
    let attributes = attributes(heap, state);
    let found = attributes.into_iter().rev().find(|(key, _)| heap.text(*key).as_deref() == Some(name));
    found.map(|(_, value)| value)
}

fn attribute(heap: &Heap<'_>, instance: ObjectId, name: &str) -> Option<ObjectId> {
    of_state(heap, *heap.instance(instance)?.state().last()?, name)
}

fn dtensor(heap: &Heap<'_>, state: ObjectId) -> Option<Sharded> {
    let spec = of_state(heap, state, "_spec")?;
    let placements =
        attribute(heap, spec, "placements").and_then(|list| heap.items(list)).unwrap_or_default();
    let is_copy = |id: &ObjectId| {
        let class = heap.instance(*id).and_then(|instance| heap.global(instance.callable));
        class.is_some_and(|(_, name)| name == "Replicate")
    };
    if !placements.is_empty() && placements.iter().all(is_copy) {
        return of_state(heap, state, "_local_tensor").map(Sharded::Copy);
    }
    let mesh = attribute(heap, spec, "mesh")?;
    let mut ranks = ["_flatten_rank_map", "_flatten_mesh_list"].iter();
    let ranks = ranks.find_map(|name| heap.items(attribute(heap, mesh, name)?));
    let of = ranks.map(<[ObjectId]>::len);
    let rank = attribute(heap, mesh, "_rank").and_then(|rank| heap.int(rank)).or_else(|| {
        // Older files have the place in the mesh; along one dimension that is the rank's.
        match heap.items(attribute(heap, mesh, "_coordinate_on_dim")?)? {
            &[place] => heap.int(*ranks?.get(usize::try_from(heap.int(place)?).ok()?)?),
            _ => None,
        }
    });
    Some(Sharded::Shard { rank, of })
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
    Sharded::Shard { rank, of: all.map(<[ObjectId]>::len) }
}
