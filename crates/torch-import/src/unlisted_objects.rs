//! Finds the objects, other than tensors and storages, that a walk saw but did not list, and those that the pickle
//! dropped.
//!
//! Facts: `Module.__init__` and `Module.state_dict` in `torch/nn/modules/module.py`: every module has `training` and
//! empty dicts of hooks. `state_dict()` sets the attribute `_metadata` on its result, the versions of the modules,
//! which only `load_state_dict()` reads.

use foldhash::HashSet;
use pickle_vm::{Heap, Instance, Object, ObjectId};

use crate::dicts::{self, BuildState, Child, ChildStep, Children};
use crate::limits::{LimitBudget, ObjectSet};
use crate::omission::{Omission, OmissionKind, OmissionReason, Omissions};
use crate::path::{self, Edge, ShortestPaths};
use crate::rebuild::RebuildFunction;
use crate::walk::Walk;
use crate::{Result, key, modules};

/// Budget for naming the omitted objects, in steps and bytes.
const OBJECT_NAMING_LIMIT: usize = 16 << 20;

/// Index of the argument that holds the attributes of a tensor.
const STATE_ARGUMENT: usize = 3;

/// An object that is not listed.
#[derive(Clone, Copy)]
struct UnlistedObject {
    /// Object that refers to this one and the step between them; `None` if there is none.
    parent: Option<(ObjectId, ChildStep)>,
    id: ObjectId,
    reason: OmissionReason,
}

/// Adds the objects that the finished walk did not list to `out`. `wrapped` are the listed tensors that have
/// attributes.
///
/// # Errors
/// When reading the contents of a module exceeds the budget of the walk.
pub(crate) fn add_unlisted_objects(
    out: &mut Omissions,
    walk: &mut Walk<'_>,
    wrapped: &[ObjectId],
    root: ObjectId,
) -> Result<()> {
    let heap = walk.containers.heap();
    let mut partial = std::mem::take(&mut walk.containers.with_extra_contents);
    // A module is created before its submodules.
    partial.sort_unstable();
    let mut names = ObjectNames { heap, root, tree: None, budget: LimitBudget::new("", OBJECT_NAMING_LIMIT) };
    let mut seen = ObjectSet::new(heap.len());
    // Objects are collected for one container at a time, because modules may share their attributes.
    let mut found = Vec::new();
    for id in partial {
        collect_from_container(&mut found, walk, id)?;
        found.drain(..).for_each(|unlisted| add_if_not_empty(out, walk, &mut names, &mut seen, unlisted));
    }
    for id in wrapped {
        collect_from_tensor(&mut found, heap, *id);
        found.drain(..).for_each(|unlisted| add_if_not_empty(out, walk, &mut names, &mut seen, unlisted));
    }
    let mut dropped = ObjectSet::new(heap.len());
    for id in heap.dropped_objects() {
        if dropped.insert(*id) && !names.tree().is_reachable(*id) {
            let reason = OmissionReason::Unreferenced;
            add_if_not_empty(
                out,
                walk,
                &mut names,
                &mut seen,
                UnlistedObject { parent: None, id: *id, reason },
            );
        }
    }
    Ok(())
}

/// Adds an object to the omissions if it has contents that are not listed.
fn add_if_not_empty(
    out: &mut Omissions,
    walk: &Walk<'_>,
    names: &mut ObjectNames<'_>,
    seen: &mut ObjectSet,
    unlisted: UnlistedObject,
) {
    let UnlistedObject { parent, id, reason } = unlisted;
    let Some(nbytes) = unlisted_bytes(walk, seen, id) else { return };
    let name = match parent {
        Some((parent, step)) if out.has_listing_room() => names.name(parent, step),
        _ => String::new(),
    };
    out.add(Omission {
        file: None,
        kind: OmissionKind::Object,
        name,
        nbytes: Some(nbytes),
        reason,
        object: Some(id),
    });
}

/// Names the omitted objects by their paths.
struct ObjectNames<'h> {
    heap: &'h Heap<'h>,
    root: ObjectId,
    /// Built on first use, since most checkpoints do not need it.
    tree: Option<ShortestPaths<'h>>,
    budget: LimitBudget,
}

impl<'h> ObjectNames<'h> {
    fn tree(&mut self) -> &ShortestPaths<'h> {
        self.tree.get_or_insert_with(|| ShortestPaths::new(self.heap, self.root))
    }

    /// Returns the path to an object, its parts joined by dots.
    fn name(&mut self, parent: ObjectId, step: ChildStep) -> String {
        let heap = self.heap;
        let tree = self.tree.get_or_insert_with(|| ShortestPaths::new(heap, self.root));
        let path = tree.path(parent, &mut self.budget);
        let mut name = path.map(|path| path::path_name(heap, &path, &mut self.budget)).unwrap_or_default();
        let part = match step {
            ChildStep::Key(key) => key::name_part(heap, key),
            ChildStep::Nan(key, number) => key::nan_name_part(heap, key, number).into(),
            ChildStep::Index(index) => index.to_string().into(),
            ChildStep::Name(name) => name.into(),
            ChildStep::OnlyChild => return name,
        };
        if self.budget.try_spend(part.len()) {
            path::push_name_part(&mut name, &part);
        }
        name
    }
}

/// Collects the contents of a module or a dict that the walk does not enter.
fn collect_from_container(found: &mut Vec<UnlistedObject>, walk: &mut Walk<'_>, id: ObjectId) -> Result<()> {
    let heap = walk.containers.heap();
    let mut add =
        |step, child, reason| found.push(UnlistedObject { parent: Some((id, step)), id: child, reason });
    if let Some(instance) = heap.instance(id)
        && let Some(attributes) = modules::own_attributes(heap, instance)
    {
        let Some(children) = walk.containers.children(id)? else { return Ok(()) };
        let steps: HashSet<ChildStep> = children.iter().map(|child| child.step).collect();
        for Child { step, id, .. } in attributes {
            let name = match step {
                ChildStep::Key(key) => heap.text(key),
                ChildStep::Name(name) => Some(name.into()),
                _ => None,
            };
            let name = name.as_deref().unwrap_or_default();
            let is_child =
                steps.contains(&step) || (name == "_op_type" && steps.contains(&ChildStep::Name("op_type")));
            if is_child || modules::COMMON_ATTRIBUTES.contains(&name) {
                continue;
            }
            let is_hook = name.contains("hook");
            add(step, id, if is_hook { OmissionReason::Hook } else { OmissionReason::Attribute });
        }
        return Ok(());
    }
    // Only a dict with a duplicate key has children that are not read in place.
    if let Some(Children::Collected(children)) = walk.containers.dict_children(id)? {
        let kept: HashSet<ObjectId> = children.iter().map(|child| child.id).collect();
        let entries = heap.entries(id).or_else(|| Some(heap.instance(id)?.items())).unwrap_or_default();
        for (key, value) in entries.iter().filter(|(_, value)| !kept.contains(value)) {
            add(ChildStep::Key(*key), *value, OmissionReason::Replaced);
        }
    }
    for state in heap.instance(id).into_iter().flat_map(Instance::state) {
        let BuildState::Attributes(attributes) = BuildState::read(heap, *state) else { continue };
        for (key, value) in attributes.into_iter().flatten() {
            if heap.text(*key).as_deref() != Some("_metadata") {
                add(ChildStep::Key(*key), *value, OmissionReason::DictAttribute);
            }
        }
    }
    Ok(())
}

/// Collects the attributes of a tensor, except `data`, which replaces its values.
fn collect_from_tensor(found: &mut Vec<UnlistedObject>, heap: &Heap<'_>, id: ObjectId) {
    let reason = OmissionReason::TensorAttribute;
    let mut add = |step, child| found.push(UnlistedObject { parent: Some((id, step)), id: child, reason });
    let args = heap.instance(id).and_then(|instance| heap.items(instance.args));
    let Some(state) = args.and_then(|args| args.get(STATE_ARGUMENT)) else { return };
    match BuildState::read(heap, *state) {
        BuildState::Attributes(attributes) => {
            let attributes = attributes.into_iter().flatten();
            let others = attributes.filter(|(key, _)| heap.text(*key).as_deref() != Some("data"));
            others.for_each(|(key, value)| add(ChildStep::Key(*key), *value));
        }
        BuildState::Other => add(ChildStep::OnlyChild, *state),
    }
}

/// Returns the size in bytes of the texts, byte strings and numbers of an object, with 8 for each number and without
/// dict keys. Returns `None` if all its contents are listed: for None, an empty container, a container of tensors,
/// modules or dicts with names of their own, and an object that was weighed before.
fn unlisted_bytes(walk: &Walk<'_>, seen: &mut ObjectSet, id: ObjectId) -> Option<u64> {
    let heap = walk.containers.heap();
    let mut weight = None;
    let mut open = vec![id];
    while let Some(id) = open.pop() {
        let own = match heap.get(id) {
            Object::None | Object::Persistent(_) => continue,
            Object::Bool(_) => 1,
            Object::Int(_) | Object::Float(_) => 8,
            Object::Long(number) => number.bytes().len(),
            Object::Text(text) => text.bytes().len(),
            Object::String(bytes) => bytes.len(),
            Object::Bytes(bytes) | Object::ByteArray(bytes) => bytes.len(),
            Object::Global(_) | Object::Extension(_) => 0,
            object => {
                if walk.containers.is_visited(id) || !seen.insert(id) {
                    continue;
                }
                let instance = heap.instance(id);
                if instance.is_some_and(|instance| RebuildFunction::called_by(heap, instance).is_some()) {
                    continue;
                }
                let edges = (0..).map_while(|n| path::edge(heap, id, n));
                let edges = edges.filter(|(edge, _)| !matches!(edge, Edge::Callable | Edge::Key));
                open.extend(edges.map(|(_, child)| child));
                // A container has no weight besides its contents.
                if !matches!(object, Object::Instance(_)) || dicts::is_dict(heap, id) {
                    continue;
                }
                0
            }
        };
        weight = Some(u64::try_from(own).unwrap_or(u64::MAX).saturating_add(weight.unwrap_or(0)));
    }
    weight
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use crate::{Checkpoint, Container, OmissionKind};

    /// Returns the omissions of a pickle: name, bytes, reason.
    fn left_out(pickle: &[u8]) -> Vec<(String, u64, String)> {
        let mut file = tempfile::NamedTempFile::new().expect("the temporary folder is writable");
        file.write_all(pickle).expect("the temporary folder is writable");
        let container = Container::open(file.path()).expect("it is a pickle");
        let left_out = Checkpoint::read(&container).expect("it is a pickle").left_out;
        assert_eq!(left_out.count(), left_out.listed.len());
        let row = |omission: crate::Omission| {
            assert_eq!(omission.kind, OmissionKind::Object);
            (omission.name, omission.nbytes.unwrap_or(u64::MAX), format!("{:?}", omission.reason))
        };
        left_out.listed.into_iter().map(row).collect()
    }

    fn check(pickle: &[u8], expected: &[(&str, u64, &str)]) {
        let found = left_out(pickle);
        let found: Vec<_> =
            found.iter().map(|(name, nbytes, reason)| (name.as_str(), *nbytes, reason.as_str())).collect();
        assert_eq!(found, expected);
    }

    /// Writes a dict in protocol 2.
    fn dict(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let entries = entries.iter().flat_map(|(key, value)| [&text(key), *value].concat());
        [b"}(".to_vec(), entries.collect(), b"u".to_vec()].concat()
    }

    fn text(text: &str) -> Vec<u8> {
        let len = u32::try_from(text.len()).expect("names are short");
        [b"X".as_slice(), &len.to_le_bytes(), text.as_bytes()].concat()
    }

    fn pickle(root: &[u8]) -> Vec<u8> {
        [b"\x80\x02", root, b"."].concat()
    }

    #[test]
    fn attributes_of_modules_are_named() {
        let module = |attributes: &[(&str, &[u8])], modules: &[u8]| {
            let common: [(&str, &[u8]); 5] = [
                ("training", b"\x88"),
                ("_parameters", b"}"),
                ("_buffers", b"}"),
                ("_forward_hooks", b"ccollections\nOrderedDict\n)R"),
                ("_modules", modules),
            ];
            [b"cmine\nNet\n)\x81".to_vec(), dict(&[&common, attributes].concat()), b"b".to_vec()].concat()
        };
        let config =
            [b"cmine\nConfig\n)\x81q\x01".to_vec(), dict(&[("name", &text("tiny"))]), b"b".to_vec()].concat();
        let inner = module(&[("in_features", b"K\x03"), ("bias", b"N"), ("config", b"h\x01")], b"}");
        let inner = [inner, b"q\x02".to_vec()].concat();
        let hooks = dict(&[("7", b"cmine\nhook\n")]);
        // A list of the module's own submodules adds nothing to them.
        let outer: [(&str, &[u8]); 4] = [
            ("config", &config),
            ("layers", b"]h\x02a"),
            ("activation", b"ctorch\nrelu\n"),
            ("_forward_pre_hooks", &hooks),
        ];
        let outer = module(&outer, &dict(&[("0", &inner)]));
        // A configuration that is popped, but to which the inner module refers.
        let root = [config.clone(), b"0".to_vec(), dict(&[("model", &outer), ("epoch", b"K\x01")])].concat();
        check(
            &pickle(&root),
            &[
                ("model.config", 4, "Attribute"),
                ("model.activation", 0, "Attribute"),
                ("model._forward_pre_hooks", 0, "Hook"),
                ("model.0.in_features", 8, "Attribute"),
                ("model.0.config", 4, "Attribute"),
            ],
        );
    }

    #[test]
    fn what_nothing_refers_to_is_named() {
        let call = b"cmine\nCall\n".to_vec();
        let call = [call, text("argument"), b"\x85R".to_vec()].concat();
        let list = dict(&[("a", &[b"]".to_vec(), call.clone(), b"a".to_vec()].concat())]);
        // A call whose result is popped, a list that stays under the root, a root that the pickle popped before.
        let dropped = [call, b"0](K\x01K\x02e".to_vec(), list.clone(), b"q\x010h\x01".to_vec()].concat();
        check(&pickle(&dropped), &[("", 8, "Unreferenced"), ("", 16, "Unreferenced")]);
        check(&pickle(&list), &[]);
        // Python writes a tuple of a list that contains the tuple in this way: the popped tuple is in the memo, too.
        check(&pickle(b"]q\x00h\x00\x85q\x01a0h\x00\x85q\x02"), &[]);
    }

    #[test]
    fn replaced_values_and_attributes_of_dicts_are_named() {
        let twice = dict(&[("a", &text("first")), ("b", b"K\x01"), ("a", &text("second"))]);
        let metadata = dict(&[("_metadata", &dict(&[("version", b"K\x01")])), ("source", &text("hub"))]);
        let ordered = [
            b"ccollections\nOrderedDict\n)R(".to_vec(),
            text("w"),
            b"K\x01u".to_vec(),
            metadata,
            b"b".to_vec(),
        ];
        let root = dict(&[("twice", &twice), ("state", &ordered.concat())]);
        check(&pickle(&root), &[("twice.a", 5, "Replaced"), ("state.source", 3, "DictAttribute")]);
    }
}
