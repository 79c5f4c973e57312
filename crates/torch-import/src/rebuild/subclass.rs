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

use super::call::{CallArgs, CallSnapshot};
use super::{Rebuilder, Rebuilt, compound, sharded};
use crate::Result;
use crate::compound::CompoundItem;

/// Rebuilds the tensor of `(class, dtype, size, …)` without its attributes, which hold the data.
pub(super) fn without_attributes<'h>(rebuilder: &Rebuilder<'h>, args: CallArgs<'h>) -> Result<CompoundItem> {
    let mut compound = compound::meta(rebuilder, args.skip_to(1))?;
    let what =
        format!("a {}, which keeps its data in its attributes", class_name(args.call, args.nth_argument(0)));
    compound.kind = CompoundKind::Meta { what };
    Ok(compound)
}

/// Rebuilds the tensor of `class` with the attributes in `state`. If a distributed tensor is whole on this rank, the
/// result is the local tensor.
pub(super) fn with_attributes<'h>(
    rebuilder: &mut Rebuilder<'h>,
    args: CallArgs<'h>,
    class: ObjectId,
    state: Option<ObjectId>,
    depth: usize,
) -> Result<Rebuilt> {
    let call = args.call;
    let mut compound = without_attributes(rebuilder, args)?;
    let Some(state) = state else { return Ok(Rebuilt::Compound(Arc::new(compound))) };
    let (attributes, shard) = match call.global(class) {
        Some((_, "DTensor")) => (call.state_attributes(state)?, Some(sharded::dtensor(call, state)?)),
        Some((_, "ShardedTensor")) => (Vec::new(), Some(sharded::sharded_tensor(call, state)?)),
        _ => (call.state_attributes(state)?, None),
    };
    if let Some(shard) = &shard
        && let (true, &[local]) = (shard.may_be_whole, shard.local.as_slice())
        && let Some(local) = rebuilder.rebuild_at_depth(local, depth.saturating_add(1))?
        && is_whole(&local, &compound)
    {
        return Ok(local);
    }
    let mut found = SubclassAttributes::default();
    for (key, value) in &attributes {
        found.add(rebuilder, call, call.key(*key), *value, depth)?;
    }
    let local = shard.iter().flat_map(|shard| &shard.local).filter(|_| attributes.is_empty());
    for (index, local) in local.enumerate() {
        found.add(rebuilder, call, Cow::Owned(format!("_local_shards.{index}")), *local, depth)?;
    }
    compound.shard = shard.as_ref().and_then(|shard| shard.position.clone()).map(Box::new);
    let shard = shard.map(|shard| shard.describe(&compound.shape));
    compound.kind = match (found.parts.is_empty(), shard) {
        (true, None) => compound.kind,
        (true, Some(shard)) => CompoundKind::Meta { what: shard },
        (false, shard) => CompoundKind::Subclass {
            class: class_name(call, Some(class)),
            shard,
            attributes: found.descriptions,
        },
    };
    compound.parts = found.parts;
    Ok(Rebuilt::Compound(Arc::new(compound)))
}

/// Returns true if a local tensor has all elements of the distributed tensor.
fn is_whole(local: &Rebuilt, whole: &CompoundItem) -> bool {
    let (shape, dtype) = match local {
        Rebuilt::Strided(tensor) => (tensor.shape(), tensor.dtype()),
        Rebuilt::Compound(compound) => (compound.shape.as_slice(), compound.dtype),
    };
    shape == whole.shape && dtype == whole.dtype
}

/// Formats the qualified name of a class.
fn class_name(call: CallSnapshot<'_>, class: Option<ObjectId>) -> String {
    match class.and_then(|class| call.global(class)) {
        Some((module, name)) => format!("{}.{}", module.escape_debug(), name.escape_debug()),
        None => "tensor of a class without a name".to_owned(),
    }
}

/// The attributes of a tensor subclass: the tensors in them, and descriptions of the rest.
#[derive(Default)]
struct SubclassAttributes {
    parts: Vec<(Cow<'static, str>, Tensor)>,
    descriptions: Vec<(String, String)>,
}

impl SubclassAttributes {
    /// Adds the attribute `name`: a tensor, its parts, the tensors in a container, or a description of any other value.
    fn add<'h>(
        &mut self,
        rebuilder: &mut Rebuilder<'h>,
        call: CallSnapshot<'h>,
        name: Cow<'_, str>,
        value: ObjectId,
        depth: usize,
    ) -> Result<()> {
        let before = self.parts.len();
        // Lists may contain themselves.
        let mut entered = HashSet::new();
        let mut open = vec![(name.clone().into_owned(), value)];
        while let Some((path, id)) = open.pop() {
            call.refuse_changed(id)?;
            match rebuilder.rebuild_at_depth(id, depth.saturating_add(1))? {
                Some(Rebuilt::Strided(tensor)) => self.add_part(rebuilder, call, path, tensor)?,
                Some(Rebuilt::Compound(compound)) => self.add_compound(rebuilder, call, &path, &compound)?,
                None if entered.insert(id) => {
                    for (child, object) in call.children(id)?.into_iter().rev() {
                        rebuilder.spend_copied(call.id(), path.len().saturating_add(child.len()))?;
                        open.push((format!("{path}.{child}"), object));
                    }
                }
                None => {}
            }
        }
        if self.parts.len() == before {
            let shown = call.display(value);
            rebuilder.spend_copied(call.id(), shown.len())?;
            self.descriptions.push((name.into_owned(), shown));
        }
        Ok(())
    }

    fn add_part<'h>(
        &mut self,
        rebuilder: &Rebuilder<'h>,
        call: CallSnapshot<'h>,
        path: String,
        tensor: Tensor,
    ) -> Result<()> {
        rebuilder.spend_copied(call.id(), path.len().saturating_add(size_of::<Tensor>()))?;
        self.parts.push((Cow::Owned(path), tensor));
        Ok(())
    }

    /// Adds the parts of an attribute that is a compound tensor, and a description of its kind.
    fn add_compound<'h>(
        &mut self,
        rebuilder: &Rebuilder<'h>,
        call: CallSnapshot<'h>,
        path: &str,
        compound: &CompoundItem,
    ) -> Result<()> {
        for (part, tensor) in &compound.parts {
            self.add_part(rebuilder, call, format!("{path}.{part}"), tensor.clone())?;
        }
        let what = match &compound.kind {
            CompoundKind::Quantized { scheme, axis: None } => format!("quantized {scheme}"),
            CompoundKind::Quantized { scheme, axis: Some(axis) } => {
                format!("quantized {scheme}, axis {axis}")
            }
            CompoundKind::Sparse { layout } | CompoundKind::Blocks { scheme: layout } => layout.clone(),
            CompoundKind::Nested => "nested".to_owned(),
            CompoundKind::Jagged => "jagged".to_owned(),
            CompoundKind::Meta { what } => what.clone(),
            CompoundKind::Subclass { class, shard, attributes } => {
                for (name, shown) in attributes {
                    rebuilder.spend_copied(
                        call.id(),
                        path.len().saturating_add(name.len()).saturating_add(shown.len()),
                    )?;
                    self.descriptions.push((format!("{path}.{name}"), shown.clone()));
                }
                shard.as_ref().map_or_else(|| class.clone(), |shard| format!("{class}: {shard}"))
            }
        };
        rebuilder.spend_copied(call.id(), path.len().saturating_add(what.len()))?;
        self.descriptions.push((path.to_owned(), what));
        Ok(())
    }
}
