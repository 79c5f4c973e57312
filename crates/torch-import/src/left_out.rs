//! What a file holds and a checkpoint does not list: tensors, storages and records, each with its bytes and the reason.
//!
//! Facts: `Module.state_dict` in `torch/nn/modules/module.py`; `inline_container.cc` and `torch/csrc/jit/mobile` for the
//! records of an archive.

use std::collections::hash_map::Entry;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use pickle_vm::{Heap, Object, ObjectId};
use tensor::Record;

use crate::dicts::Children;
use crate::limits::{Budget, Marks};
use crate::omission::{LeftOut, Omission, OmissionKind, OmissionReason};
use crate::persistent::StorageRef;
use crate::rebuild::{Function, Rebuilt};
use crate::walk::Walk;
use crate::{Container, Result, key, modules};

/// What naming them may cost, in steps and bytes, and the longest name in bytes.
const NAMING: usize = 16 << 20;
const LONGEST_NAME: usize = 1024;

/// What the finished walk did not list.
///
/// # Errors
/// When a tensor is nested more deeply than the walk goes.
pub(crate) fn find(walk: &mut Walk<'_>, container: &Container, root: ObjectId) -> Result<LeftOut> {
    let mut out = LeftOut::default();
    tensors(&mut out, walk, root)?;
    // The tensors that were just found use their storages too.
    let heap = walk.containers.heap();
    let records = container.records();
    let used = walk.rebuilder.used_records();
    let numbered = (0_u32..).zip(used).filter(|(_, used)| !used);
    let unused = numbered.filter_map(|(number, _)| Some((records.get(number)?, number)));
    let mut unused: Vec<(&Record, u32)> = unused.filter(|(record, _)| !record.range.is_empty()).collect();
    // In the order of the file.
    unused.sort_by_key(|(record, _)| (record.inflated, record.range.start));
    let referred = if unused.is_empty() { HashSet::new() } else { referred(heap, container) };
    for (record, number) in unused {
        let is_referred = referred.contains(&number);
        let reason = if is_referred { OmissionReason::Unreached } else { OmissionReason::Unreferenced };
        let (name, nbytes) = (records.full_name(number), Some(record.range.len() as u64));
        out.add(Omission { file: None, kind: OmissionKind::Storage, name, nbytes, reason });
    }
    container.unread().iter().for_each(|omission| out.add(omission.clone()));
    Ok(out)
}

/// The records of the storages that persistent ids name.
fn referred(heap: &Heap<'_>, container: &Container) -> HashSet<u32> {
    let ids = heap.persistent_objects().iter();
    ids.filter_map(|id| container.record_number(&StorageRef::read(heap, *id).ok()?.key)).collect()
}

/// The tensors that the walk did not reach.
fn tensors(out: &mut LeftOut, walk: &mut Walk<'_>, root: ObjectId) -> Result<()> {
    let heap = walk.containers.heap();
    let makes_one = |id: ObjectId| {
        let instance = heap.instance(id)?;
        Function::called_by(heap, instance).filter(|function| function.makes_one())
    };
    let missed: Vec<ObjectId> =
        heap.ids().filter(|id| makes_one(*id).is_some() && !walk.rebuilder.is_done(*id)).collect();
    if missed.is_empty() {
        return Ok(());
    }
    let tree = Tree::new(heap, root);
    let mut is_missed = Marks::new(heap.len());
    for id in &missed {
        is_missed.insert(*id);
    }
    let mut paths = Paths { naming: Budget::new("", NAMING), winners: HashMap::new() };
    for id in missed {
        let path = tree.path(id, &mut paths.naming);
        if path.as_ref().is_some_and(|path| path.iter().any(|step| is_missed.contains(step.parent))) {
            // A part of another tensor, which is listed.
            continue;
        }
        let (name, reason) = match &path {
            None => (String::new(), OmissionReason::Unreferenced),
            Some(path) => (paths.name(heap, path), paths.reason(walk, path, root)?),
        };
        let rebuilt = walk.rebuilder.rebuild(id).ok().flatten();
        // An array of objects or of text is a value.
        if rebuilt.is_none() && makes_one(id) == Some(Function::NumpyArray) {
            continue;
        }
        let nbytes = rebuilt.map(|rebuilt| match rebuilt {
            Rebuilt::Strided(tensor) => tensor.nbytes(),
            Rebuilt::Compound(compound) => {
                compound.parts.iter().fold(0, |sum, (_, part)| part.nbytes().saturating_add(sum))
            }
        });
        out.add(Omission { file: None, kind: OmissionKind::Tensor, name, nbytes, reason });
    }
    Ok(())
}

/// How one object refers to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    Item(usize),
    Value(ObjectId),
    Key,
    Appended(usize),
    Args,
    State,
    Kwargs,
    Callable,
    PersistentId,
}

/// Reference number `n` of an object.
fn edge(heap: &Heap<'_>, id: ObjectId, n: usize) -> Option<(Edge, ObjectId)> {
    let entry = |entries: &[(ObjectId, ObjectId)], n: usize| {
        let (key, value) = *entries.get(n / 2)?;
        Some(if n.is_multiple_of(2) { (Edge::Value(key), value) } else { (Edge::Key, key) })
    };
    match heap.get(id) {
        Object::Dict(entries) => entry(entries.get(), n),
        Object::List(_) | Object::Tuple(_) | Object::Set(_) | Object::FrozenSet(_) => {
            Some((Edge::Item(n), *heap.items(id)?.get(n)?))
        }
        Object::Persistent(pid) => (n == 0).then_some((Edge::PersistentId, *pid)),
        Object::Instance(instance) => {
            let fixed = [
                Some((Edge::Args, instance.args)),
                Some((Edge::Callable, instance.callable)),
                instance.kwargs().map(|kwargs| (Edge::Kwargs, kwargs)),
            ];
            let mut n = n;
            for edge in fixed.into_iter().flatten() {
                match n.checked_sub(1) {
                    None => return Some(edge),
                    Some(less) => n = less,
                }
            }
            if let Some(state) = instance.state().get(n) {
                return Some((Edge::State, *state));
            }
            n = n.checked_sub(instance.state().len())?;
            if let Some(item) = instance.appends().get(n) {
                return Some((Edge::Appended(n), *item));
            }
            n = n.checked_sub(instance.appends().len())?;
            entry(instance.items(), n)
        }
        _ => None,
    }
}

/// One step of a path: an object, and which of its references leads on.
#[derive(Clone, Copy, Debug)]
struct PathStep {
    parent: ObjectId,
    edge: Edge,
    child: ObjectId,
}

/// The shortest path from the root to each object.
struct Tree<'h> {
    heap: &'h Heap<'h>,
    root: ObjectId,
    /// For each object, the object before it and the number of the reference; the root's and those of objects that
    /// nothing refers to are `None`.
    before: Vec<Option<(ObjectId, u32)>>,
}

impl<'h> Tree<'h> {
    fn new(heap: &'h Heap<'h>, root: ObjectId) -> Self {
        let mut before = vec![None; heap.len()];
        let mut seen = Marks::new(heap.len());
        seen.insert(root);
        let mut queue = std::collections::VecDeque::from([root]);
        while let Some(parent) = queue.pop_front() {
            let edges = (0..).map_while(|n| Some((n, edge(heap, parent, usize::try_from(n).ok()?)?)));
            for (n, (_, child)) in edges {
                if seen.insert(child) {
                    if let Some(before) = before.get_mut(child.index()) {
                        *before = Some((parent, n));
                    }
                    queue.push_back(child);
                }
            }
        }
        Self { heap, root, before }
    }

    /// The path to an object; `None` if nothing refers to it. It is cut at its start when the budget is spent.
    fn path(&self, id: ObjectId, budget: &mut Budget) -> Option<Vec<PathStep>> {
        let mut path = Vec::new();
        let mut child = id;
        while child != self.root {
            let (parent, n) = (*self.before.get(child.index())?)?;
            if !budget.try_spend(1) {
                break;
            }
            let (edge, _) = edge(self.heap, parent, usize::try_from(n).ok()?)?;
            path.push(PathStep { parent, edge, child });
            child = parent;
        }
        path.reverse();
        Some(path)
    }
}

/// Whether a step leads to the arguments of a call that makes a tensor.
fn is_of_tensor(heap: &Heap<'_>, step: &PathStep) -> bool {
    let instance = heap.instance(step.parent);
    step.edge == Edge::Args && instance.is_some_and(|instance| Function::called_by(heap, instance).is_some())
}

/// Where in a module a path is.
#[derive(Clone, Copy, Debug)]
enum At {
    /// Not in the attributes of a module.
    Elsewhere,
    /// At the attributes of this module.
    Attributes(ObjectId),
    /// At its parameters, buffers or submodules, of which those that `state_dict()` does not return have this reason.
    Group(ObjectId, OmissionReason),
}

/// Names of paths, and the reasons why the walk does not take them.
struct Paths {
    naming: Budget,
    /// The values of dicts that have several values for a key, without those that later ones replace.
    winners: HashMap<ObjectId, Option<HashSet<ObjectId>>>,
}

impl Paths {
    /// The parts of a path that Python code would name, joined by dots.
    fn name(&mut self, heap: &Heap<'_>, path: &[PathStep]) -> String {
        let mut name = String::new();
        for (index, step) in path.iter().enumerate() {
            let before = index.checked_sub(1).and_then(|before| path.get(before));
            let part = match step.edge {
                Edge::Value(key) => {
                    let part = if self.naming.try_spend(1) { key::part(heap, key) } else { "…".into() };
                    if !self.naming.try_spend(part.len()) {
                        return name;
                    }
                    let is_state = before.is_some_and(|before| {
                        matches!(before.edge, Edge::State | Edge::Args | Edge::Item(_))
                    });
                    if is_state && matches!(part.as_ref(), "_parameters" | "_buffers" | "_modules") {
                        continue;
                    }
                    part
                }
                Edge::Item(_) if before.is_some_and(|before| is_of_tensor(heap, before)) => continue,
                Edge::Item(index) | Edge::Appended(index) => index.to_string().into(),
                _ => continue,
            };
            if name.len().saturating_add(part.len()) > LONGEST_NAME {
                name.push('…');
                return name;
            }
            if !name.is_empty() {
                name.push('.');
            }
            name.push_str(&part);
        }
        name
    }

    /// Why the walk did not take a path: the first step that it does not take.
    fn reason(&mut self, walk: &mut Walk<'_>, path: &[PathStep], root: ObjectId) -> Result<OmissionReason> {
        let heap = walk.containers.heap();
        if path.first().is_some_and(|step| step.parent != root) {
            // The path is not known up to the root.
            return Ok(OmissionReason::Unreached);
        }
        let mut at = At::Elsewhere;
        for step in path {
            if let Some(error) = walk.too_deep(step.parent) {
                return Err(error);
            }
            if step.edge == Edge::Key {
                return Ok(OmissionReason::DictKey);
            }
            let instance = heap.instance(step.parent);
            if let Some(instance) = instance
                && modules::is_module(heap, instance)
            {
                at = At::Attributes(step.parent);
                continue;
            }
            match (at, step.edge) {
                (At::Attributes(module), Edge::Value(key)) => {
                    at = match heap.text(key).as_deref() {
                        Some("_parameters" | "_modules") => At::Group(module, OmissionReason::Unreached),
                        Some("_buffers") => At::Group(module, OmissionReason::NonPersistentBuffer),
                        Some(name) if name.contains("hook") => return Ok(OmissionReason::Hook),
                        _ if self.is_child(walk, module, step.child)? => At::Elsewhere,
                        _ => return Ok(OmissionReason::Attribute),
                    };
                    continue;
                }
                (At::Group(module, reason), Edge::Value(_)) => {
                    if self.is_replaced(walk, step)? {
                        return Ok(OmissionReason::Replaced);
                    }
                    if !self.is_child(walk, module, step.child)? {
                        return Ok(reason);
                    }
                    at = At::Elsewhere;
                    continue;
                }
                // Tuples of dicts, and the arguments of calls that make dicts.
                (At::Attributes(_) | At::Group(..), _) => continue,
                (At::Elsewhere, _) => {}
            }
            if let Some(instance) = instance {
                if Function::called_by(heap, instance).is_some() {
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

    /// Whether `state_dict()` of a module names an object.
    fn is_child(&mut self, walk: &mut Walk<'_>, module: ObjectId, id: ObjectId) -> Result<bool> {
        let Some(children) = walk.containers.children(module)? else { return Ok(false) };
        // Without a budget to look, nothing is said about it.
        Ok(children.iter().any(|child| !self.naming.try_spend(1) || child.id == id))
    }

    /// Whether the value of a dict is replaced by a later one of its key.
    fn is_replaced(&mut self, walk: &mut Walk<'_>, step: &PathStep) -> Result<bool> {
        let winners = match self.winners.entry(step.parent) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(match walk.containers.dict_children(step.parent)? {
                Some(children @ Children::Built(_)) => Some(children.iter().map(|child| child.id).collect()),
                _ => None,
            }),
        };
        Ok(winners.as_ref().is_some_and(|winners| !winners.contains(&step.child)))
    }
}
