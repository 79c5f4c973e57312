//! The contents of the objects of a checkpoint, and their names.
//!
//! Facts: `Module.state_dict` in `torch/nn/modules/module.py`, `copyreg._reconstructor`,
//! `restore_type_tag` and `build_*list` in `torch/jit/_pickle.py`.

use foldhash::{HashMap, HashMapExt, HashSet};
use pickle_vm::{Heap, Instance, Object, ObjectId};

use crate::encoded::attributes;
use crate::key::{self, Key};

/// One step of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A dict's key, or an attribute's name.
    Key(ObjectId),
    /// An index of a list or tuple.
    Index(usize),
}

type Children = Vec<(Step, ObjectId)>;

/// The contents of a container, in order; `None` for objects that are not containers.
pub(crate) fn children_of(heap: &Heap<'_>, id: ObjectId) -> Option<Children> {
    match heap.get(id) {
        Object::Dict(_) => Some(last_of_each_key(heap, heap.entries(id)?.iter().copied())),
        Object::List(_) | Object::Tuple(_) | Object::Set(_) | Object::FrozenSet(_) => {
            Some(indexed(heap.items(id)?))
        }
        Object::Instance(instance) => instance_children(heap, instance),
        _ => None,
    }
}

/// Whether an object is a dict, or an instance of a class of dicts.
pub(crate) fn is_dict(heap: &Heap<'_>, id: ObjectId) -> bool {
    let class = heap.instance(id).and_then(|instance| heap.global(instance.callable));
    heap.entries(id).is_some()
        || matches!(class, Some(("collections", "OrderedDict" | "defaultdict" | "Counter")))
}

fn instance_children(heap: &Heap<'_>, instance: &Instance) -> Option<Children> {
    let args = heap.items(instance.args).unwrap_or_default();
    match heap.global(instance.callable) {
        Some(("collections", "OrderedDict" | "defaultdict" | "Counter")) => {
            Some(dict_instance(heap, instance))
        }
        // A TorchScript list or dict, and its type.
        Some(("torch.jit._pickle", _)) => children_of(heap, *args.first()?),
        // Text, bytes, enums and similar values: the arguments of the call describe them completely.
        Some(("_codecs" | "torch" | "pathlib" | "numpy" | "builtins" | "__builtin__", _)) => None,
        _ => {
            if let Some(children) = module(heap, instance) {
                return Some(children);
            }
            // Protocols 0 and 1: a class, the base class that holds the contents, and the contents.
            let (args, contents) = match (heap.global(instance.callable), args) {
                (Some(("copyreg" | "copy_reg", "_reconstructor")), &[_, _, contents]) => {
                    (heap.items(contents).unwrap_or_default(), heap.entries(contents).unwrap_or_default())
                }
                _ => (args, [].as_slice()),
            };
            let mut children = indexed(args);
            children.extend(indexed(instance.appends()));
            let attributes = instance.state().iter().flat_map(|state| attributes(heap, *state));
            let items = instance.items().iter().chain(contents).copied();
            children.extend(last_of_each_key(heap, attributes.chain(items)));
            (!children.is_empty()).then_some(children)
        }
    }
}

fn indexed(items: &[ObjectId]) -> Children {
    items.iter().enumerate().map(|(index, item)| (Step::Index(index), *item)).collect()
}

/// An OrderedDict or a defaultdict. Old protocols pass the pairs as an argument.
fn dict_instance(heap: &Heap<'_>, instance: &Instance) -> Children {
    let args = heap.items(instance.args).unwrap_or_default();
    let pairs = args.iter().filter_map(|arg| heap.items(*arg)).flatten();
    let pairs = pairs.filter_map(|pair| match heap.items(*pair)? {
        &[key, value] => Some((key, value)),
        _ => None,
    });
    let entries = args.iter().filter_map(|arg| heap.entries(*arg)).flatten().copied();
    last_of_each_key(heap, pairs.chain(entries).chain(instance.items().iter().copied()))
}

/// What `state_dict()` of a pickled `nn.Module` names: its parameters, its buffers without the
/// non-persistent ones, its submodules.
fn module(heap: &Heap<'_>, instance: &Instance) -> Option<Children> {
    let attributes = attributes(heap, *instance.state().last()?);
    let attribute = |name: &str| {
        let found = attributes.iter().rev().find(|(key, _)| heap.text(*key).as_deref() == Some(name));
        found.map(|(_, value)| *value)
    };
    let entries = |name: &str| -> Vec<(Step, ObjectId)> {
        let children = attribute(name).and_then(|dict| dict_children(heap, dict)).unwrap_or_default();
        // Parameters that are registered but not set are `None`.
        children.into_iter().filter(|(_, value)| !heap.is_none(*value)).collect()
    };
    attribute("_parameters")?;
    attribute("_modules")?;
    let transient: HashSet<String> = attribute("_non_persistent_buffers_set")
        .and_then(|set| set_items(heap, set))
        .unwrap_or_default()
        .iter()
        .map(|name| key::part(heap, *name).into_owned())
        .collect();
    let persistent = |(step, _): &(Step, ObjectId)| match step {
        Step::Key(key) => !transient.contains(key::part(heap, *key).as_ref()),
        Step::Index(_) => true,
    };
    let mut children = entries("_parameters");
    children.extend(entries("_buffers").into_iter().filter(persistent));
    children.extend(entries("_modules"));
    Some(children)
}

/// A dict, or a call that makes one.
fn dict_children(heap: &Heap<'_>, id: ObjectId) -> Option<Children> {
    match heap.get(id) {
        Object::Dict(_) => children_of(heap, id),
        Object::Instance(instance) => Some(dict_instance(heap, instance)),
        _ => None,
    }
}

/// A set, or before protocol 4 a call of `set` with a list.
fn set_items<'h>(heap: &'h Heap<'_>, id: ObjectId) -> Option<&'h [ObjectId]> {
    match heap.instance(id) {
        Some(instance) => heap.items(*heap.items(instance.args)?.first()?),
        None => heap.items(id),
    }
}

/// A dict keeps a key's first place and its last value.
fn last_of_each_key(heap: &Heap<'_>, entries: impl Iterator<Item = (ObjectId, ObjectId)>) -> Children {
    let room = entries.size_hint().0;
    let mut places: HashMap<Key<'_>, usize> = HashMap::with_capacity(room);
    let mut children: Children = Vec::with_capacity(room);
    for (key, value) in entries {
        let place = *places.entry(Key::new(heap, key)).or_insert(children.len());
        match children.get_mut(place) {
            Some(child) => child.1 = value,
            None => children.push((Step::Key(key), value)),
        }
    }
    children
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the root's contents.
    fn names(bytes: &[u8]) -> Vec<String> {
        let pickle = pickle_vm::load(bytes).expect("CPython wrote it");
        let children = children_of(&pickle.heap, pickle.root).unwrap_or_default();
        let name = |(step, _): &(Step, ObjectId)| match step {
            Step::Key(key) => key::part(&pickle.heap, *key).into_owned(),
            Step::Index(index) => index.to_string(),
        };
        children.iter().map(name).collect()
    }

    #[test]
    fn keys_that_are_not_text_do_not_hide_each_other() {
        // `{b"a": 1, b"b": 2, 2**70: 3, 2**71: 4}`, protocol 2: bytes are calls there.
        let bytes = b"\x80\x02}(c_codecs\nencode\nq\x01X\x01\x00\x00\x00aX\x06\x00\x00\x00latin1q\x03\x86RK\x01h\x01\
            X\x01\x00\x00\x00bh\x03\x86RK\x02\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00@K\x03\x8a\n\x00\x00\x00\x00\x00\
            \x00\x00\x00\x80\x00K\x04u.";
        assert_eq!(names(bytes), ["b'a'", "b'b'", "1180591620717411303424", "2361183241434822606848"]);
    }

    #[test]
    fn a_counter_is_a_dict() {
        // `Counter(a=1, b=2)`, protocol 2.
        let bytes = b"\x80\x02ccollections\nCounter\n}(X\x01\x00\x00\x00aK\x01X\x01\x00\x00\x00bK\x02u\x85R.";
        assert_eq!(names(bytes), ["a", "b"]);
    }

    #[test]
    fn old_protocols_pass_the_contents_of_a_subclass() {
        // `P(1, 2)` of a namedtuple, protocol 1.
        let bytes = b"ccopy_reg\n_reconstructor\n(c__main__\nP\nc__builtin__\ntuple\n(K\x01K\x02ttR.";
        assert_eq!(names(bytes), ["0", "1"]);
        // A subclass of dict with an item `a` and an attribute `e`, protocol 1.
        let bytes =
            b"ccopy_reg\n_reconstructor\n(c__main__\nD\nc__builtin__\ndict\n}X\x01\x00\x00\x00aK\x01stR}\
            X\x01\x00\x00\x00eK\x02sb.";
        assert_eq!(names(bytes), ["e", "a"]);
    }
}
