//! Finds the tensors, other objects, storages and records of a file that its checkpoint does not list, with their sizes
//! in bytes and the reasons.
//!
//! Facts: `Module.state_dict` in `torch/nn/modules/module.py`; `inline_container.cc` and `torch/csrc/jit/mobile` for the
//! records of an archive.

use std::collections::hash_map::Entry;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use pickle_vm::{Heap, ObjectId};
use tensor::StorageRecord;

use crate::dicts::Children;
use crate::limits::{LimitBudget, ObjectSet};
use crate::omission::{Omission, OmissionKind, OmissionReason, Omissions};
use crate::path::{self, Edge, PathStep, ShortestPaths};
use crate::persistent::StorageRef;
use crate::rebuild::{CalledFunctions, RebuildFunction, Rebuilt};
use crate::walk::Walk;
use crate::{Container, Result, modules, unlisted_objects};

/// Budget for naming the omitted tensors, in steps and bytes.
const TENSOR_NAMING_LIMIT: usize = 16 << 20;

/// Finds the omissions after the walk is complete.
///
/// # Errors
/// When a tensor is nested more deeply than the walk's limit.
pub(crate) fn find_omissions(
    walk: &mut Walk<'_>,
    container: &Container,
    root: ObjectId,
) -> Result<Omissions> {
    let mut out = Omissions::default();
    let (missed, with_attributes) = unlisted_tensors(walk);
    // Objects come first, because `tensors` visits containers that the walk did not.
    let mut objects = Omissions::default();
    unlisted_objects::add_unlisted_objects(&mut objects, walk, &with_attributes, root)?;
    add_missed_tensors(&mut out, walk, missed, root)?;
    out.append(objects);
    // The storages of the tensors found above count as used.
    let heap = walk.containers.heap();
    let records = container.records();
    let used = walk.rebuilder.used_records();
    let numbered = (0_u32..).zip(used).filter(|(_, used)| !used);
    let unused = numbered.filter_map(|(number, _)| Some((records.get(number)?, number)));
    let mut unused: Vec<(&StorageRecord, u32)> =
        unused.filter(|(record, _)| !record.range.is_empty()).collect();
    // Unused records are listed in the order of the file.
    unused.sort_by_key(|(record, _)| (record.inflated, record.range.start));
    let referred = if unused.is_empty() { HashSet::new() } else { referenced_records(heap, container) };
    for (record, number) in unused {
        let is_referred = referred.contains(&number);
        let reason = if is_referred { OmissionReason::Unreached } else { OmissionReason::Unreferenced };
        let (name, nbytes) = (records.full_name(number), Some(record.nbytes()));
        out.add(Omission { file: None, kind: OmissionKind::Storage, name, nbytes, reason, object: None });
    }
    container.unread_omissions().iter().for_each(|omission| out.add(omission.clone()));
    Ok(out)
}

/// Returns the records of the storages that persistent ids name.
fn referenced_records(heap: &Heap<'_>, container: &Container) -> HashSet<u32> {
    let ids = heap.persistent_objects().iter();
    ids.filter_map(|id| container.record_number(&StorageRef::read(heap, *id).ok()?.key)).collect()
}

/// Returns the tensors that the walk did not reach, and the reached tensors that have attributes.
fn unlisted_tensors(walk: &Walk<'_>) -> (Vec<ObjectId>, Vec<ObjectId>) {
    let heap = walk.containers.heap();
    let (mut missed, mut with_attributes) = (Vec::new(), Vec::new());
    let mut functions = CalledFunctions::new(heap);
    for id in heap.ids() {
        let Some(function) = heap.instance(id).and_then(|instance| functions.called_by(instance)) else {
            continue;
        };
        let is_done = walk.rebuilder.is_rebuilt(id);
        if function.creates_tensor() && !is_done {
            missed.push(id);
        } else if function.has_attributes() && is_done {
            with_attributes.push(id);
        }
    }
    (missed, with_attributes)
}

/// Names the tensors that the walk did not reach.
fn add_missed_tensors(
    out: &mut Omissions,
    walk: &mut Walk<'_>,
    missed: Vec<ObjectId>,
    root: ObjectId,
) -> Result<()> {
    let heap = walk.containers.heap();
    if missed.is_empty() {
        return Ok(());
    }
    let tree = ShortestPaths::new(heap, root);
    let mut is_missed = ObjectSet::new(heap.len());
    for id in &missed {
        is_missed.insert(*id);
    }
    let mut paths =
        OmissionPaths { naming: LimitBudget::new("", TENSOR_NAMING_LIMIT), surviving_values: HashMap::new() };
    for id in missed {
        let path = tree.path(id, &mut paths.naming);
        if path.as_ref().is_some_and(|path| path.iter().any(|step| is_missed.contains(step.parent))) {
            // Skips a part of another tensor that is itself listed.
            continue;
        }
        let (name, reason) = match &path {
            None => (String::new(), OmissionReason::Unreferenced),
            Some(path) => (path::path_name(heap, path, &mut paths.naming), paths.reason(walk, path, root)?),
        };
        let rebuilt = walk.rebuilder.rebuild(id).ok().flatten();
        // An array of objects or of text is a value, not a tensor.
        let function = heap.instance(id).and_then(|instance| RebuildFunction::called_by(heap, instance));
        if rebuilt.is_none() && function == Some(RebuildFunction::NumpyArray) {
            continue;
        }
        let nbytes = rebuilt.map(|rebuilt| match rebuilt {
            Rebuilt::Strided(tensor) => tensor.nbytes(),
            Rebuilt::Compound(compound) => {
                compound.parts.iter().fold(0, |sum, (_, part)| part.nbytes().saturating_add(sum))
            }
        });
        out.add(Omission { file: None, kind: OmissionKind::Tensor, name, nbytes, reason, object: None });
    }
    Ok(())
}

/// Position of a path relative to a module.
#[derive(Clone, Copy, Debug)]
enum ModulePosition {
    /// Outside the attributes of a module.
    Elsewhere,
    Attributes(ObjectId),
    /// At the module's parameters, buffers or submodules. The reason applies to members that `state_dict()` does not
    /// return.
    Group(ObjectId, OmissionReason),
}

/// Names paths, and finds the reasons why the walk does not follow them.
struct OmissionPaths {
    naming: LimitBudget,
    /// For each dict with duplicate keys, the values that no later entry replaces.
    surviving_values: HashMap<ObjectId, Option<HashSet<ObjectId>>>,
}

impl OmissionPaths {
    /// Returns the reason why the walk did not follow a path, which is that of the first step not followed.
    fn reason(&mut self, walk: &mut Walk<'_>, path: &[PathStep], root: ObjectId) -> Result<OmissionReason> {
        let heap = walk.containers.heap();
        if path.first().is_some_and(|step| step.parent != root) {
            // The beginning of the path, up to the root, is unknown.
            return Ok(OmissionReason::Unreached);
        }
        let mut at = ModulePosition::Elsewhere;
        for step in path {
            if let Some(error) = walk.too_deep_error(step.parent) {
                return Err(error);
            }
            if step.edge == Edge::Key {
                return Ok(OmissionReason::DictKey);
            }
            let instance = heap.instance(step.parent);
            if let Some(instance) = instance
                && modules::is_module(heap, instance)
            {
                at = ModulePosition::Attributes(step.parent);
                continue;
            }
            match (at, step.edge) {
                (ModulePosition::Attributes(module), Edge::Value(key)) => {
                    at = match heap.text(key).as_deref() {
                        Some("_parameters" | "_modules") => {
                            ModulePosition::Group(module, OmissionReason::Unreached)
                        }
                        Some("_buffers") => {
                            ModulePosition::Group(module, OmissionReason::NonPersistentBuffer)
                        }
                        Some(name) if name.contains("hook") => return Ok(OmissionReason::Hook),
                        _ if self.is_child(walk, module, step.child)? => ModulePosition::Elsewhere,
                        _ => return Ok(OmissionReason::Attribute),
                    };
                    continue;
                }
                (ModulePosition::Group(module, reason), Edge::Value(_)) => {
                    if self.is_replaced(walk, step)? {
                        return Ok(OmissionReason::Replaced);
                    }
                    if !self.is_child(walk, module, step.child)? {
                        return Ok(reason);
                    }
                    at = ModulePosition::Elsewhere;
                    continue;
                }
                // Tuples of dicts, and the arguments of calls that create dicts.
                (ModulePosition::Attributes(_) | ModulePosition::Group(..), _) => continue,
                (ModulePosition::Elsewhere, _) => {}
            }
            if let Some(instance) = instance {
                if RebuildFunction::called_by(heap, instance).is_some() {
                    return Ok(OmissionReason::TensorAttribute);
                }
                if walk.containers.children(step.parent)?.is_none() {
                    return Ok(OmissionReason::InValue);
                }
            }
            if matches!(step.edge, Edge::Value(_)) && self.is_replaced(walk, step)? {
                return Ok(OmissionReason::Replaced);
            }
        }
        Ok(OmissionReason::Unreached)
    }

    /// Returns true if the `state_dict()` of a module names an object.
    fn is_child(&mut self, walk: &mut Walk<'_>, module: ObjectId, id: ObjectId) -> Result<bool> {
        let Some(children) = walk.containers.children(module)? else { return Ok(false) };
        // Without budget the answer is yes, so that no unchecked reason is reported.
        Ok(children.iter().any(|child| !self.naming.try_spend(1) || child.id == id))
    }

    /// Returns true if a later entry with the same key replaces a dict's value.
    fn is_replaced(&mut self, walk: &mut Walk<'_>, step: &PathStep) -> Result<bool> {
        let winners = match self.surviving_values.entry(step.parent) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(match walk.containers.dict_children(step.parent)? {
                Some(children @ Children::Collected(_)) => {
                    Some(children.iter().map(|child| child.id).collect())
                }
                _ => None,
            }),
        };
        Ok(winners.as_ref().is_some_and(|winners| !winners.contains(&step.child)))
    }
}
