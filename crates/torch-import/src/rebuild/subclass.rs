//! Rebuilds tensor subclasses that keep their data in attributes, such as torchao's quantized tensors and `DTensor`,
//! from `_rebuild_wrapper_subclass`.
//!
//! Facts: `_rebuild_wrapper_subclass` in `torch/_utils.py` and `_reduce_ex_internal` in `torch/_tensor.py` of PyTorch
//! 2.15: the attributes are the state of `_rebuild_from_type_v2`. Files written by torchao 0.9 and 0.18.

use std::borrow::Cow;
use std::sync::Arc;

use foldhash::{HashSet, HashSetExt};
use pickle_vm::ObjectId;
use tensor::{CompoundKind, Tensor};

use super::call::{Args, Then};
use super::{Rebuilder, Rebuilt, compound, sharded};
use crate::Result;
use crate::compound::Compound;

/// Rebuilds the tensor of `(class, dtype, size, …)` without its attributes, which hold the data.
pub(super) fn without_attributes<'h>(rebuilder: &Rebuilder<'h>, args: Args<'h>) -> Result<Compound> {
    let mut compound = compound::meta(rebuilder, args.from(1))?;
    let what = format!("a {}, which keeps its data in its attributes", class_name(args.then, args.nth(0)));
    compound.kind = CompoundKind::Meta { what };
    Ok(compound)
}

/// Rebuilds the tensor of `class` with the attributes in `state`. If a distributed tensor is whole on this rank, the
/// result is the local tensor.
pub(super) fn with_attributes<'h>(
    rebuilder: &mut Rebuilder<'h>,
    args: Args<'h>,
    class: ObjectId,
    state: Option<ObjectId>,
    depth: usize,
) -> Result<Rebuilt> {
    let then = args.then;
    let mut compound = without_attributes(rebuilder, args)?;
    let Some(state) = state else { return Ok(Rebuilt::Compound(Arc::new(compound))) };
    let (attributes, shard) = match then.global(class) {
        Some((_, "DTensor")) => (then.state(state)?, Some(sharded::dtensor(then, state)?)),
        Some((_, "ShardedTensor")) => (Vec::new(), Some(sharded::sharded_tensor(then, state)?)),
        _ => (then.state(state)?, None),
    };
    if let Some(shard) = &shard
        && let (true, &[local]) = (shard.may_be_whole, shard.local.as_slice())
        && let Some(local) = rebuilder.at_depth(local, depth.saturating_add(1))?
        && is_whole(&local, &compound)
    {
        return Ok(local);
    }
    let mut found = Attributes::default();
    for (key, value) in &attributes {
        found.add(rebuilder, then, then.key(*key), *value, depth)?;
    }
    let local = shard.iter().flat_map(|shard| &shard.local).filter(|_| attributes.is_empty());
    for (index, local) in local.enumerate() {
        found.add(rebuilder, then, Cow::Owned(format!("_local_shards.{index}")), *local, depth)?;
    }
    let shard = shard.map(|shard| shard.describe(&compound.shape));
    compound.kind = match (found.parts.is_empty(), shard) {
        (true, None) => compound.kind,
        (true, Some(shard)) => CompoundKind::Meta { what: shard },
        (false, shard) => {
            CompoundKind::Subclass { class: class_name(then, Some(class)), shard, attributes: found.others }
        }
    };
    compound.parts = found.parts;
    Ok(Rebuilt::Compound(Arc::new(compound)))
}

/// Returns true if a local tensor has all elements of the distributed tensor.
fn is_whole(local: &Rebuilt, whole: &Compound) -> bool {
    let (shape, dtype) = match local {
        Rebuilt::Strided(tensor) => (tensor.shape(), tensor.dtype()),
        Rebuilt::Compound(compound) => (compound.shape.as_slice(), compound.dtype),
    };
    shape == whole.shape && dtype == whole.dtype
}

/// Formats the qualified name of a class.
fn class_name(then: Then<'_>, class: Option<ObjectId>) -> String {
    match class.and_then(|class| then.global(class)) {
        Some((module, name)) => format!("{}.{}", module.escape_debug(), name.escape_debug()),
        None => "tensor of a class without a name".to_owned(),
    }
}

/// The attributes of a tensor subclass: the tensors in them, and descriptions of the rest.
#[derive(Default)]
struct Attributes {
    parts: Vec<(Cow<'static, str>, Tensor)>,
    others: Vec<(String, String)>,
}

impl Attributes {
    /// Adds the attribute `name`: a tensor, its parts, the tensors in a container, or a description of any other value.
    fn add<'h>(
        &mut self,
        rebuilder: &mut Rebuilder<'h>,
        then: Then<'h>,
        name: Cow<'_, str>,
        value: ObjectId,
        depth: usize,
    ) -> Result<()> {
        let before = self.parts.len();
        // Lists may contain themselves.
        let mut entered = HashSet::new();
        let mut open = vec![(name.clone().into_owned(), value)];
        while let Some((path, id)) = open.pop() {
            then.unchanged(id)?;
            match rebuilder.at_depth(id, depth.saturating_add(1))? {
                Some(Rebuilt::Strided(tensor)) => self.part(rebuilder, then, path, tensor)?,
                Some(Rebuilt::Compound(compound)) => self.compound(rebuilder, then, &path, &compound)?,
                None if entered.insert(id) => {
                    for (child, object) in then.children(id)?.into_iter().rev() {
                        rebuilder.copies(then.id(), path.len().saturating_add(child.len()))?;
                        open.push((format!("{path}.{child}"), object));
                    }
                }
                None => {}
            }
        }
        if self.parts.len() == before {
            let shown = then.display(value);
            rebuilder.copies(then.id(), shown.len())?;
            self.others.push((name.into_owned(), shown));
        }
        Ok(())
    }

    fn part<'h>(
        &mut self,
        rebuilder: &Rebuilder<'h>,
        then: Then<'h>,
        path: String,
        tensor: Tensor,
    ) -> Result<()> {
        rebuilder.copies(then.id(), path.len().saturating_add(size_of::<Tensor>()))?;
        self.parts.push((Cow::Owned(path), tensor));
        Ok(())
    }

    /// Adds the parts of an attribute that is a compound tensor, and a description of its kind.
    fn compound<'h>(
        &mut self,
        rebuilder: &Rebuilder<'h>,
        then: Then<'h>,
        path: &str,
        compound: &Compound,
    ) -> Result<()> {
        for (part, tensor) in &compound.parts {
            self.part(rebuilder, then, format!("{path}.{part}"), tensor.clone())?;
        }
        let what = match &compound.kind {
            CompoundKind::Quantized { scheme, axis: None } => format!("quantized {scheme}"),
            CompoundKind::Quantized { scheme, axis: Some(axis) } => {
                format!("quantized {scheme}, axis {axis}")
            }
            CompoundKind::Sparse { layout } => layout.clone(),
            CompoundKind::Nested => "nested".to_owned(),
            CompoundKind::Jagged => "jagged".to_owned(),
            CompoundKind::Meta { what } => what.clone(),
            CompoundKind::Subclass { class, shard, attributes } => {
                for (name, shown) in attributes {
                    rebuilder.copies(
                        then.id(),
                        path.len().saturating_add(name.len()).saturating_add(shown.len()),
                    )?;
                    self.others.push((format!("{path}.{name}"), shown.clone()));
                }
                shard.as_ref().map_or_else(|| class.clone(), |shard| format!("{class}: {shard}"))
            }
        };
        rebuilder.copies(then.id(), path.len().saturating_add(what.len()))?;
        self.others.push((path.to_owned(), what));
        Ok(())
    }
}
