//! What the objects of a checkpoint contain, and under which names.
//!
//! Facts: `Module.state_dict` in `torch/nn/modules/module.py`, `copyreg._reconstructor`,
//! `restore_type_tag` and `build_*list` in `torch/jit/_pickle.py`.

use foldhash::{HashMap, HashMapExt, HashSet};
use pickle_vm::{Heap, Instance, Object, ObjectId};

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

/// What a container holds, in order; `None` for what is no container.
pub(crate) fn of(heap: &Heap<'_>, id: ObjectId) -> Option<Children> {
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
    heap.entries(id).is_some() || matches!(class, Some(("collections", "OrderedDict" | "defaultdict")))
}

fn instance_children(heap: &Heap<'_>, instance: &Instance) -> Option<Children> {
    let args = heap.items(instance.args).unwrap_or_default();
    match heap.global(instance.callable) {
        Some(("collections", "OrderedDict" | "defaultdict")) => Some(dict_instance(heap, instance)),
        // A TorchScript list or dict with its type beside it.
        Some(("torch.jit._pickle", _)) => of(heap, *args.first()?),
        // Text, bytes, enums and the like: a call that says all in its arguments.
        Some(("_codecs" | "torch" | "pathlib" | "numpy" | "builtins" | "__builtin__", _)) => None,
        _ => {
            if let Some(children) = module(heap, instance) {
                return Some(children);
            }
            // The arguments of `_reconstructor` are classes.
            let args = match heap.global(instance.callable) {
                Some(("copyreg" | "copy_reg", "_reconstructor")) => &[],
                _ => args,
            };
            let mut children = indexed(args);
            children.extend(indexed(instance.appends()));
            let attributes = instance.state().iter().flat_map(|state| attributes(heap, *state));
            children.extend(last_of_each_key(heap, attributes.chain(instance.items().iter().copied())));
            (!children.is_empty()).then_some(children)
        }
    }
}

fn indexed(items: &[ObjectId]) -> Children {
    items.iter().enumerate().map(|(index, item)| (Step::Index(index), *item)).collect()
}

/// An OrderedDict or a defaultdict. Old protocols hand the pairs over as an argument.
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

/// The attributes that a state sets: a dict, or a tuple of a dict and one of slots.
fn attributes(heap: &Heap<'_>, state: ObjectId) -> Vec<(ObjectId, ObjectId)> {
    if let Some(entries) = heap.entries(state) {
        return entries.to_vec();
    }
    match heap.items(state) {
        Some(dicts @ ([_] | [_, _])) => {
            dicts.iter().filter_map(|dict| heap.entries(*dict)).flatten().copied().collect()
        }
        _ => Vec::new(),
    }
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
        let children = attribute(name).and_then(|dict| of_dict(heap, dict)).unwrap_or_default();
        // What is registered and not set is `None`.
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
fn of_dict(heap: &Heap<'_>, id: ObjectId) -> Option<Children> {
    match heap.get(id) {
        Object::Dict(_) => of(heap, id),
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
        let place = *places.entry(Key::of(heap, key)).or_insert(children.len());
        match children.get_mut(place) {
            Some(child) => child.1 = value,
            None => children.push((Step::Key(key), value)),
        }
    }
    children
}
